package bigiron.app;

import java.nio.charset.StandardCharsets;

/** An HTML page. Its first line is for the driver: whether the operation was done, and three numbers that its data must add up to. */
final class Page {
    private final StringBuilder text = new StringBuilder(8192);
    private boolean done;
    private long[] sums = new long[3];

    Page(String title) {
        text.append("<!DOCTYPE html>\n<html>\n<head><title>").append(title).append("</title></head>\n<body>\n<h1>").append(title);
        text.append("</h1>\n");
    }

    /** The operation was done. */
    void done(long first, long second, long third) {
        done = true;
        sums = new long[] {first, second, third};
    }

    Page line(String words) {
        text.append("<p>").append(words).append("</p>\n");
        return this;
    }

    Page begin(String... heads) {
        text.append("<table>\n<tr>");
        for (String head : heads) {
            text.append("<th>").append(head).append("</th>");
        }
        text.append("</tr>\n");
        return this;
    }

    Page row(Object... cells) {
        text.append("<tr>");
        for (Object cell : cells) {
            text.append("<td>").append(cell).append("</td>");
        }
        text.append("</tr>\n");
        return this;
    }

    Page end() {
        text.append("</table>\n");
        return this;
    }

    /** An amount of cents. */
    static String money(long cents) {
        long rest = Math.abs(cents % 100);
        return (cents < 0 ? "-" : "") + Math.abs(cents / 100) + (rest < 10 ? ".0" : ".") + rest;
    }

    byte[] bytes() {
        String first = "<!--" + (done ? 1 : 0) + " " + sums[0] + " " + sums[1] + " " + sums[2] + "-->\n";
        return (first + text + "</body>\n</html>\n").getBytes(StandardCharsets.UTF_8);
    }

    @Override
    public String toString() {
        return text.toString();
    }
}
