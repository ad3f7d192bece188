package bigiron;

import java.net.InetAddress;
import java.net.ServerSocket;

/**
 * Rooms of users with a server between them: one of both ends, in a JVM of its own. A user's message goes to the server, which relays it to all
 * others of the room.
 *
 * <p>Each run waits for words: {@code run} connects (answer {@code ready}), {@code go} releases the threads (answer {@code done}), {@code end} ends
 * them (answer {@code ended}). {@code exit} ends the program.
 */
public final class Chat {
    private static final String USAGE = "end=server|users rooms=N users=N messages=N size=N seed=N port=N";
    /** Users that have connected and were not accepted yet. */
    private static final int BACKLOG = 1024;

    /** What a run does: every user of every room sends {@code messages}. */
    record Shape(int rooms, int users, int messages, Message message) {
        /** Messages that a user receives. */
        int relayed() {
            return (users - 1) * messages;
        }
    }

    private Chat() {}

    public static void main(String[] args) throws Exception {
        Steps steps = new Steps(args, USAGE);
        Message message = new Message(steps.number("size", 100), steps.seed());
        Shape shape = new Shape(steps.number("rooms", 10), steps.number("users", 20), steps.number("messages", 10), message);
        boolean server = steps.given("end", "server").equals("server");
        try (ServerSocket listener = server ? new ServerSocket(0, BACKLOG, InetAddress.getLoopbackAddress()) : null) {
            int port = server ? listener.getLocalPort() : steps.number("port", 0);
            steps.introduce(",\"port\":" + port);
            for (String step = steps.next(); !step.equals("exit"); step = steps.next()) {
                Crew crew = server ? Server.accept(listener, shape) : Users.connect(port, shape);
                crew.ready();
                steps.say("ready");
                steps.await("go");
                crew.go();
                crew.done();
                steps.say("done");
                steps.await("end");
                crew.end();
                steps.say("ended");
            }
        }
    }
}
