package bigiron;

import com.sun.management.ThreadMXBean;
import java.lang.management.ManagementFactory;
import java.util.concurrent.CountDownLatch;

/** A point of the curve: a number of warehouses, each with a thread. */
final class Point {
    /** How long a thread works: a number of operations, or else a time. */
    record Length(long operations, long ns) {
        static Length parse(String text) {
            return text.endsWith("ns")
                ? new Length(0, Long.parseLong(text.substring(0, text.length() - 2)))
                : new Length(Long.parseLong(text), 0);
        }
    }

    private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();

    private final Company company;
    private final Worker[] workers;
    private final Thread[] threads;
    private final Length warmup;
    private final Length length;
    private final CountDownLatch warm;
    private final CountDownLatch go = new CountDownLatch(1);
    private final CountDownLatch done;
    private final CountDownLatch over = new CountDownLatch(1);

    Point(Company company, Length warmup, Length length, long seed) {
        this.company = company;
        this.warmup = warmup;
        this.length = length;
        int count = company.warehouses.length;
        workers = new Worker[count];
        threads = new Thread[count];
        warm = new CountDownLatch(count);
        done = new CountDownLatch(count);
        for (int i = 0; i < count; i++) {
            workers[i] = new Worker(new Terminal(company, company.warehouses[i], seed));
            threads[i] = new Thread(workers[i], "warehouse-" + (i + 1));
        }
    }

    /** Starts the threads and waits until all have warmed up. */
    void warmUp() throws InterruptedException {
        for (Thread thread : threads) {
            thread.start();
        }
        warm.await();
    }

    /** Measures. Returns nanoseconds from the release of the threads until the last has ended its work. */
    long measure() throws InterruptedException {
        long start = System.nanoTime();
        go.countDown();
        done.await();
        return System.nanoTime() - start;
    }

    /** Ends the threads, checks the data, and describes the point as JSON. */
    String end(long ns) throws InterruptedException {
        over.countDown();
        for (Thread thread : threads) {
            thread.join();
        }
        company.check();
        long operations = 0;
        long allocated = 0;
        long digest = 0;
        for (Worker worker : workers) {
            operations += worker.operations;
            allocated += worker.allocated;
            digest += worker.terminal.digest();
        }
        System.gc();
        Runtime runtime = Runtime.getRuntime();
        return "{\"warehouses\":" + workers.length + ",\"operations\":" + operations + ",\"ns\":" + ns
            + ",\"allocated\":" + allocated + ",\"live\":" + (runtime.totalMemory() - runtime.freeMemory())
            + ",\"heap\":" + runtime.totalMemory() + ",\"digest\":\"" + Long.toHexString(digest) + "\"}";
    }

    private final class Worker implements Runnable {
        final Terminal terminal;
        long operations;
        long allocated;

        Worker(Terminal terminal) {
            this.terminal = terminal;
        }

        @Override
        public void run() {
            try {
                work(warmup);
                long before = THREADS.getCurrentThreadAllocatedBytes();
                warm.countDown();
                go.await();
                operations = work(length);
                done.countDown();
                allocated = THREADS.getCurrentThreadAllocatedBytes() - before;
                over.await();
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }

        private long work(Length length) {
            if (length.ns() == 0) {
                for (long n = 0; n < length.operations(); n++) {
                    terminal.transaction();
                }
                return length.operations();
            }
            long start = System.nanoTime();
            long n = 0;
            do {
                terminal.transaction();
                n++;
            } while (System.nanoTime() - start < length.ns());
            return n;
        }
    }
}
