package bigiron;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

/** The format of a message: its sender, its room, its number, and a filling that both ends know. */
final class Message {
    static final int HEADER = 16;

    /** A message whose header is zero. */
    private final byte[] blank;

    Message(int size, long seed) {
        blank = new byte[size];
        Draws draws = new Draws(seed, 0);
        for (int i = HEADER; i < size; i++) {
            blank[i] = (byte) draws.next();
        }
    }

    int size() {
        return blank.length;
    }

    byte[] of(int user, int room, long number) {
        byte[] bytes = blank.clone();
        header(bytes).putInt(0, user).putInt(4, room).putLong(8, number);
        return bytes;
    }

    /** The sender of a message that has arrived in a room. */
    int sender(byte[] bytes, int room) {
        if (header(bytes).getInt(4) != room || !Arrays.equals(bytes, HEADER, bytes.length, blank, HEADER, blank.length)) {
            throw new Wrong("a message of room " + room + " is not as it was sent");
        }
        return header(bytes).getInt(0);
    }

    /** Refuses a message out of its sender's order. */
    static void inOrder(byte[] bytes, long number) {
        if (header(bytes).getLong(8) != number) {
            throw new Wrong("message " + header(bytes).getLong(8) + " of user " + header(bytes).getInt(0) + " came instead of " + number);
        }
    }

    private static ByteBuffer header(byte[] bytes) {
        return ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    }
}
