package bigiron;

import java.io.IOException;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;

/** The threads of a run at one end, two for each connection: they start together, and stay until they are counted. */
final class Crew {
    interface Work {
        void run() throws IOException, InterruptedException;
    }

    private final List<Thread> threads = new ArrayList<>();
    private final List<Socket> sockets = new ArrayList<>();
    private final CountDownLatch there;
    private final CountDownLatch go = new CountDownLatch(1);
    private final CountDownLatch done;
    private final CountDownLatch over = new CountDownLatch(1);

    Crew(int connections) {
        there = new CountDownLatch(2 * connections);
        done = new CountDownLatch(2 * connections);
    }

    /** Starts the threads of a connection, which wait for {@link #go}. */
    void add(Socket socket, Work send, Work receive) {
        sockets.add(socket);
        for (Work work : List.of(send, receive)) {
            Thread thread = new Thread(() -> work(work));
            threads.add(thread);
            thread.start();
        }
    }

    void ready() throws InterruptedException {
        there.await();
    }

    void go() {
        go.countDown();
    }

    void done() throws InterruptedException {
        done.await();
    }

    /** Ends the threads. Nothing may be left in the connections. */
    void end() throws IOException, InterruptedException {
        over.countDown();
        for (Thread thread : threads) {
            thread.join();
        }
        for (Socket socket : sockets) {
            socket.shutdownOutput();
        }
        for (Socket socket : sockets) {
            if (socket.getInputStream().read() >= 0) {
                throw new Wrong("a connection had more messages than were sent");
            }
            socket.close();
        }
    }

    private void work(Work work) {
        try {
            there.countDown();
            go.await();
            work.run();
            done.countDown();
            over.await();
        } catch (IOException | InterruptedException e) {
            throw new IllegalStateException("a connection failed: " + e, e);
        }
    }
}
