package bigiron;

import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.Socket;

/** The users' end of the rooms: for each user a thread that sends and one that receives. */
final class Users {
    private Users() {}

    /** Connects all users, one after the other. */
    static Crew connect(int port, Chat.Shape shape) throws IOException {
        Crew crew = new Crew(shape.rooms() * shape.users());
        for (int room = 0; room < shape.rooms(); room++) {
            for (int user = 0; user < shape.users(); user++) {
                Socket socket = new Socket(InetAddress.getLoopbackAddress(), port);
                socket.setTcpNoDelay(true);
                int to = room;
                int from = user;
                crew.add(socket, () -> send(socket, to, from, shape), () -> receive(socket, to, from, shape));
            }
        }
        return crew;
    }

    private static void send(Socket socket, int room, int from, Chat.Shape shape) throws IOException {
        OutputStream out = socket.getOutputStream();
        for (int n = 0; n < shape.messages(); n++) {
            out.write(shape.message().of(from, room, n));
        }
    }

    private static void receive(Socket socket, int room, int user, Chat.Shape shape) throws IOException {
        DataInputStream in = new DataInputStream(socket.getInputStream());
        byte[] bytes = new byte[shape.message().size()];
        long[] next = new long[shape.users()];
        for (int n = 0; n < shape.relayed(); n++) {
            in.readFully(bytes);
            int from = shape.message().sender(bytes, room);
            if (from == user || from < 0 || from >= next.length) {
                throw new Wrong("user " + user + " of room " + room + " received a message of user " + from);
            }
            Message.inOrder(bytes, next[from]++);
        }
    }
}
