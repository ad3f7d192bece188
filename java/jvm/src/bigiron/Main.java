package bigiron;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.TreeMap;

/**
 * A business in one JVM: points with 1, 2, … warehouses. Prints a line of JSON for the machine, and one for each point.
 *
 * <p>Arguments are words {@code NAME=VALUE}. With {@code steps=stdin} each step waits for a line of standard input ({@code load},
 * {@code go}, {@code end}, and at last {@code exit}) and the program answers {@code ready} and {@code done}; the end of the input ends the program.
 */
public final class Main {
    /** Exit statuses: wrong use, and wrong data. */
    private static final int USAGE = 2;

    private static final int WRONG = 4;

    private Main() {}

    public static void main(String[] args) throws Exception {
        // An error in a thread must not leave the others waiting.
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> fail(error));
        TreeMap<String, String> given = new TreeMap<>();
        for (String arg : args) {
            int equals = arg.indexOf('=');
            if (equals < 0) {
                System.err.println("usage: points=1,2 warmup=N|Nns length=N|Nns items=N customers=N seed=N steps=stdin|none");
                System.exit(USAGE);
            }
            given.put(arg.substring(0, equals), arg.substring(equals + 1));
        }
        boolean driven = given.getOrDefault("steps", "none").equals("stdin");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        Point.Length warmup = Point.Length.parse(given.getOrDefault("warmup", "10000"));
        Point.Length length = Point.Length.parse(given.getOrDefault("length", "10000"));
        int items = Integer.parseInt(given.getOrDefault("items", "20000"));
        int customers = Integer.parseInt(given.getOrDefault("customers", "3000"));
        long seed = Long.parseUnsignedLong(given.getOrDefault("seed", "1"));
        say("{\"java\":\"" + Runtime.version() + "\",\"vm\":\"" + System.getProperty("java.vm.name") + "\",\"cpus\":"
            + Runtime.getRuntime().availableProcessors() + "}");
        for (String count : given.getOrDefault("points", "1,2").split(",")) {
            if (driven) {
                await(input, "load");
            }
            Point point = new Point(new Company(Integer.parseInt(count), items, customers, seed), warmup, length, seed);
            System.gc();
            point.warmUp();
            if (driven) {
                say("ready");
                await(input, "go");
            }
            long ns = point.measure();
            if (driven) {
                say("done");
                await(input, "end");
            }
            say(point.end(ns));
        }
        if (driven) {
            await(input, "exit");
        }
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static void await(BufferedReader input, String word) throws IOException {
        String line = input.readLine();
        if (line == null) {
            System.exit(0);
        }
        if (!line.equals(word)) {
            throw new IOException("`" + line + "` instead of `" + word + "`");
        }
    }

    private static void fail(Throwable error) {
        boolean wrong = error instanceof Company.Wrong;
        System.err.println(wrong ? "Self-check failed: " + error.getMessage() : error.toString());
        Runtime.getRuntime().halt(wrong ? WRONG : 1);
    }
}
