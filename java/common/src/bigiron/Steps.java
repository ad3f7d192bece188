package bigiron;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.TreeMap;

/**
 * A program's words with the process that started it: arguments {@code NAME=VALUE}, a line of standard input for each step, lines of standard
 * output. The end of the input ends the program.
 */
final class Steps {
    /** Exit statuses: wrong use, and wrong data. */
    private static final int USAGE = 2;

    private static final int WRONG = 4;

    private final TreeMap<String, String> given = new TreeMap<>();
    private final BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));

    Steps(String[] args, String usage) {
        // An error in a thread must not leave the others waiting.
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> fail(error));
        for (String arg : args) {
            int equals = arg.indexOf('=');
            if (equals < 0) {
                System.err.println("usage: " + usage);
                System.exit(USAGE);
            }
            given.put(arg.substring(0, equals), arg.substring(equals + 1));
        }
    }

    String given(String name, String otherwise) {
        return given.getOrDefault(name, otherwise);
    }

    int number(String name, int otherwise) {
        String text = given.get(name);
        return text == null ? otherwise : Integer.parseInt(text);
    }

    long seed() {
        return Long.parseUnsignedLong(given("seed", "1"));
    }

    /** What a program says first: about its JVM, and {@code more} with a comma before it. */
    void introduce(String more) {
        say("{\"java\":\"" + Runtime.version() + "\",\"vm\":\"" + System.getProperty("java.vm.name") + "\",\"cpus\":"
            + Runtime.getRuntime().availableProcessors() + more + "}");
    }

    void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    /** The next step. */
    String next() throws IOException {
        String line = input.readLine();
        if (line == null) {
            System.exit(0);
        }
        return line;
    }

    void await(String word) throws IOException {
        String line = next();
        if (!line.equals(word)) {
            throw new IOException("`" + line + "` instead of `" + word + "`");
        }
    }

    private static void fail(Throwable error) {
        boolean wrong = error instanceof Wrong;
        System.err.println(wrong ? "Self-check failed: " + error.getMessage() : error.toString());
        Runtime.getRuntime().halt(wrong ? WRONG : 1);
    }
}
