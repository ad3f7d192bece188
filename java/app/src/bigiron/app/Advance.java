package bigiron.app;

import jakarta.servlet.http.HttpServletRequest;
import java.sql.Connection;
import java.sql.SQLException;

/**
 * A station of the factory finishes its part of the oldest work order that waits for it. After the last one, the items go to the stock, unless they were
 * built for an order. Says whether the work order is complete, and its items.
 */
public final class Advance extends Operation {
    private static final long serialVersionUID = 1;
    private static final int LAST = 2;

    @Override
    void act(Connection database, HttpServletRequest request, Page page) throws SQLException {
        int station = number(request, "station");
        long[] work = row(database,
            "SELECT id, item, quantity, CASE WHEN order_id IS NULL THEN 1 ELSE 0 END FROM work WHERE stage = ? ORDER BY id LIMIT 1 "
                + "FOR UPDATE SKIP LOCKED",
            station);
        if (work == null) {
            page.line("No work order waits for station " + station);
            return;
        }
        change(database, "UPDATE work SET stage = stage + 1 WHERE id = ?", work[0]);
        if (station == LAST && work[3] == 1) {
            change(database, "UPDATE item SET stock = stock + ? WHERE id = ?", work[2], work[1]);
        }
        page.line("Work order " + work[0] + " has left station " + station);
        page.done(station == LAST ? 1 : 0, station == LAST ? work[2] : 0, 0);
    }
}
