package bigiron.app;

import jakarta.servlet.http.HttpServletRequest;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Map;
import java.util.TreeMap;

/** A dealer cancels its newest open order: items return to the stock, those being built will. Says the total and the items that returned. */
public final class Cancel extends Operation {
    private static final long serialVersionUID = 1;

    @Override
    void act(Connection database, HttpServletRequest request, Page page) throws SQLException {
        int dealer = number(request, "dealer");
        row(database, "SELECT balance FROM dealer WHERE id = ? FOR UPDATE", dealer);
        long[] order = row(database, "SELECT id, total FROM orders WHERE dealer = ? AND state = 0 ORDER BY id DESC LIMIT 1", dealer);
        if (order == null) {
            page.line("You have no open order");
            return;
        }
        TreeMap<Integer, Integer> back = new TreeMap<>();
        // Built goods that are complete; the others go to the stock when they are.
        collect(database, "SELECT item, CASE stage WHEN 3 THEN quantity ELSE 0 END FROM work WHERE order_id = ? FOR UPDATE", order[0], back);
        change(database, "UPDATE work SET order_id = NULL WHERE order_id = ?", order[0]);
        collect(database, "SELECT item, quantity FROM line WHERE order_id = ? AND built = 0", order[0], back);
        long items = 0;
        for (Map.Entry<Integer, Integer> entry : back.entrySet()) {
            change(database, "UPDATE item SET stock = stock + ? WHERE id = ?", entry.getValue(), entry.getKey());
            items += entry.getValue();
        }
        change(database, "UPDATE orders SET state = 2 WHERE id = ?", order[0]);
        change(database, "UPDATE dealer SET balance = balance - ? WHERE id = ?", order[1], dealer);
        page.line("Your order " + order[0] + " of " + Page.money(order[1]) + " is cancelled");
        page.done(order[1], items, 0);
    }

    private static void collect(Connection database, String sql, long order, Map<Integer, Integer> into) throws SQLException {
        try (PreparedStatement statement = database.prepareStatement(sql)) {
            set(statement, order);
            try (ResultSet rows = statement.executeQuery()) {
                while (rows.next()) {
                    into.merge(rows.getInt(1), rows.getInt(2), Integer::sum);
                }
            }
        }
    }
}
