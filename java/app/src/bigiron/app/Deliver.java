package bigiron.app;

import jakarta.servlet.http.HttpServletRequest;
import java.sql.Connection;
import java.sql.SQLException;

/** A supplier delivers the oldest purchase that is due. Says its cost and its components. */
public final class Deliver extends Operation {
    private static final long serialVersionUID = 1;

    @Override
    void act(Connection database, HttpServletRequest request, Page page) throws SQLException {
        long[] due = row(database,
            "SELECT id, component, quantity, cost FROM purchase WHERE delivered = 0 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED");
        if (due == null) {
            page.line("Nothing is due");
            return;
        }
        change(database, "UPDATE purchase SET delivered = 1 WHERE id = ?", due[0]);
        change(database, "UPDATE component SET stock = stock + ?, ordered = ordered - ? WHERE id = ?", due[2], due[2], due[1]);
        page.line("Purchase " + due[0] + ": " + due[2] + " of component " + due[1]).done(due[3], due[2], 0);
    }
}
