package bigiron.app;

import jakarta.servlet.http.HttpServletRequest;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Map;
import java.util.TreeMap;

/** A production line plans a work order for the stock, which takes its components. Says the items and the purchases that became necessary. */
public final class Schedule extends Operation {
    private static final long serialVersionUID = 1;
    /** What a purchase brings a stock to, above its low mark. */
    private static final int LOT = 1000;

    @Override
    void act(Connection database, HttpServletRequest request, Page page) throws SQLException {
        int item = number(request, "item");
        int quantity = number(request, "quantity");
        long work = insert(database, "INSERT INTO work (item, quantity, stage) VALUES (?, ?, 0)", item, quantity);
        TreeMap<Integer, Integer> components = new TreeMap<>();
        add(database, components, item, quantity);
        page.line("Work order " + work + ": " + quantity + " of item " + item).begin("Component", "Quantity");
        for (Map.Entry<Integer, Integer> component : components.entrySet()) {
            page.row(component.getKey(), component.getValue());
        }
        page.end().done(quantity, take(database, components), 0);
    }

    /** Adds the components of some items. */
    static void add(Connection database, Map<Integer, Integer> components, int item, int quantity) throws SQLException {
        try (PreparedStatement statement = database.prepareStatement("SELECT component, quantity FROM part WHERE item = ?")) {
            set(statement, item);
            try (ResultSet rows = statement.executeQuery()) {
                while (rows.next()) {
                    components.merge(rows.getInt(1), rows.getInt(2) * quantity, Integer::sum);
                }
            }
        }
    }

    /** Takes components off their stock, and purchases those that run short. Returns the purchases. */
    static int take(Connection database, TreeMap<Integer, Integer> components) throws SQLException {
        int purchases = 0;
        for (Map.Entry<Integer, Integer> entry : components.entrySet()) {
            int component = entry.getKey();
            long[] known = row(database, "SELECT stock, low, ordered, cost FROM component WHERE id = ? FOR UPDATE", component);
            long left = known[0] - entry.getValue();
            boolean isShort = left < known[1] && known[2] == 0;
            long lot = isShort ? known[1] + LOT - left : 0;
            change(database, "UPDATE component SET stock = stock - ?, ordered = ordered + ? WHERE id = ?", entry.getValue(), lot, component);
            if (isShort) {
                change(database, "INSERT INTO purchase (component, quantity, cost, delivered) VALUES (?, ?, ?, 0)", component, lot, lot * known[3]);
                purchases++;
            }
        }
        return purchases;
    }
}
