package bigiron;

import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayDeque;

/** The server's end of the rooms: for each connection a thread that receives and one that sends, with a queue between them. */
final class Server {
    /** Messages for one user, in order. */
    private static final class Queue {
        private final ArrayDeque<byte[]> messages = new ArrayDeque<>();

        synchronized void put(byte[] message) {
            messages.add(message);
            notify();
        }

        synchronized byte[] take() throws InterruptedException {
            while (messages.isEmpty()) {
                wait();
            }
            return messages.poll();
        }
    }

    private Server() {}

    /** Accepts the connections of all users, in the order in which they connect. */
    static Crew accept(ServerSocket listener, Chat.Shape shape) throws IOException {
        Crew crew = new Crew(shape.rooms() * shape.users());
        for (int room = 0; room < shape.rooms(); room++) {
            Queue[] queues = new Queue[shape.users()];
            for (int user = 0; user < queues.length; user++) {
                queues[user] = new Queue();
            }
            for (int user = 0; user < queues.length; user++) {
                Socket socket = listener.accept();
                socket.setTcpNoDelay(true);
                Queue own = queues[user];
                int to = room;
                int from = user;
                crew.add(socket, () -> send(socket, own, shape), () -> receive(socket, queues, to, from, shape));
            }
        }
        return crew;
    }

    private static void send(Socket socket, Queue queue, Chat.Shape shape) throws IOException, InterruptedException {
        OutputStream out = socket.getOutputStream();
        for (int n = 0; n < shape.relayed(); n++) {
            out.write(queue.take());
        }
    }

    private static void receive(Socket socket, Queue[] queues, int room, int from, Chat.Shape shape) throws IOException {
        DataInputStream in = new DataInputStream(socket.getInputStream());
        for (int n = 0; n < shape.messages(); n++) {
            byte[] bytes = new byte[shape.message().size()];
            in.readFully(bytes);
            if (shape.message().sender(bytes, room) != from) {
                throw new Wrong("user " + from + " of room " + room + " sent as another");
            }
            Message.inOrder(bytes, n);
            for (int user = 0; user < queues.length; user++) {
                if (user != from) {
                    queues[user].put(bytes);
                }
            }
        }
    }
}
