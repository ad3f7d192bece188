package bigiron.app;

import jakarta.servlet.http.HttpServletRequest;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;

/** A page of the catalogue, and the dealer's last orders. Says how many items it shows. */
public final class Browse extends Operation {
    private static final long serialVersionUID = 1;
    private static final String[] STATES = {"open", "paid", "cancelled"};

    @Override
    void act(Connection database, HttpServletRequest request, Page page) throws SQLException {
        int first = number(request, "item");
        int shown = 0;
        page.begin("Item", "Name", "Description", "Price", "Stock");
        String items = "SELECT id, name, about, price, stock FROM item WHERE id >= ? ORDER BY id LIMIT 20";
        try (PreparedStatement statement = database.prepareStatement(items)) {
            set(statement, first);
            try (ResultSet rows = statement.executeQuery()) {
                while (rows.next()) {
                    page.row(rows.getInt(1), rows.getString(2), rows.getString(3), Page.money(rows.getLong(4)), rows.getLong(5));
                    shown++;
                }
            }
        }
        page.end().begin("Order", "State", "Total");
        String orders = "SELECT id, state, total FROM orders WHERE dealer = ? ORDER BY id DESC LIMIT 5";
        try (PreparedStatement statement = database.prepareStatement(orders)) {
            set(statement, number(request, "dealer"));
            try (ResultSet rows = statement.executeQuery()) {
                while (rows.next()) {
                    page.row(rows.getLong(1), STATES[rows.getInt(2)], Page.money(rows.getLong(3)));
                }
            }
        }
        page.end().done(shown, 0, 0);
    }
}
