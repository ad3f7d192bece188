package bigiron;

/**
 * A business in one JVM: points with 1, 2, … warehouses. Prints a line of JSON for the machine, and one for each point.
 *
 * <p>With {@code steps=stdin} each step waits for a word ({@code load}, {@code go}, {@code end}, and at last {@code exit}) and the program answers
 * {@code ready} and {@code done}.
 */
public final class Main {
    private static final String USAGE = "points=1,2 warmup=N|Nns length=N|Nns items=N customers=N seed=N steps=stdin|none";

    private Main() {}

    public static void main(String[] args) throws Exception {
        Steps steps = new Steps(args, USAGE);
        boolean driven = steps.given("steps", "none").equals("stdin");
        Point.Length warmup = Point.Length.parse(steps.given("warmup", "10000"));
        Point.Length length = Point.Length.parse(steps.given("length", "10000"));
        int items = steps.number("items", 20000);
        int customers = steps.number("customers", 3000);
        long seed = steps.seed();
        steps.introduce("");
        for (String count : steps.given("points", "1,2").split(",")) {
            if (driven) {
                steps.await("load");
            }
            Point point = new Point(new Company(Integer.parseInt(count), items, customers, seed), warmup, length, seed);
            System.gc();
            point.warmUp();
            if (driven) {
                steps.say("ready");
                steps.await("go");
            }
            long ns = point.measure();
            if (driven) {
                steps.say("done");
                steps.await("end");
            }
            steps.say(point.end(ns));
        }
        if (driven) {
            steps.await("exit");
        }
    }
}
