package bigiron.app;

import jakarta.servlet.http.HttpServletRequest;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.Map;
import java.util.TreeMap;

/**
 * A dealer orders items. Many of one, and what the stock does not have, are built: a work order of their own. Refused if the dealer's credit does not
 * suffice.
 *
 * <p>Says the total, the work orders, and the purchases for them. Rows are locked in the order dealers, orders, work orders, items, components, each by
 * number: so do all operations.
 */
public final class Order extends Operation {
    private static final long serialVersionUID = 1;
    /** Most items that come from the stock. */
    private static final int MANY = 100;

    @Override
    void act(Connection database, HttpServletRequest request, Page page) throws SQLException {
        int dealer = number(request, "dealer");
        TreeMap<Integer, Integer> wanted = new TreeMap<>();
        for (String line : request.getParameter("items").split(",")) {
            int times = line.indexOf('x');
            wanted.merge(Integer.valueOf(line.substring(0, times)), Integer.valueOf(line.substring(times + 1)), Integer::sum);
        }
        long[] account = row(database, "SELECT credit, balance FROM dealer WHERE id = ? FOR UPDATE", dealer);
        long[][] lines = new long[wanted.size()][];
        long total = 0;
        int count = 0;
        for (Map.Entry<Integer, Integer> line : wanted.entrySet()) {
            long[] item = row(database, "SELECT price, stock FROM item WHERE id = ? FOR UPDATE", line.getKey());
            long quantity = line.getValue();
            long amount = item[0] * quantity;
            lines[count] = new long[] {line.getKey(), quantity, amount, quantity > MANY || quantity > item[1] ? 1 : 0};
            total += amount;
            count++;
        }
        if (account[1] + total > account[0]) {
            page.line("The order of " + Page.money(total) + " exceeds your credit of " + Page.money(account[0] - account[1]));
            return;
        }
        change(database, "UPDATE dealer SET balance = balance + ? WHERE id = ?", total, dealer);
        long order = insert(database, "INSERT INTO orders (dealer, state, total) VALUES (?, 0, ?)", dealer, total);
        page.line("Thank you for your order " + order).begin("Item", "Quantity", "Amount", "From");
        TreeMap<Integer, Integer> components = new TreeMap<>();
        int built = 0;
        for (int n = 0; n < lines.length; n++) {
            long[] line = lines[n];
            change(database, "INSERT INTO line (order_id, number, item, quantity, amount, built) VALUES (?, ?, ?, ?, ?, ?)",
                order, n + 1, line[0], line[1], line[2], line[3]);
            if (line[3] == 0) {
                change(database, "UPDATE item SET stock = stock - ? WHERE id = ?", line[1], line[0]);
            } else {
                built++;
                change(database, "INSERT INTO work (item, quantity, stage, order_id) VALUES (?, ?, 0, ?)", line[0], line[1], order);
                Schedule.add(database, components, (int) line[0], (int) line[1]);
            }
            page.row(line[0], line[1], Page.money(line[2]), line[3] == 0 ? "stock" : "factory");
        }
        page.end().line("Total: " + Page.money(total));
        page.done(total, built, Schedule.take(database, components));
    }
}
