package bigiron.app;

import jakarta.servlet.http.HttpServletRequest;
import java.sql.Connection;
import java.sql.SQLException;

/** A dealer sees its account and pays its open orders. Says what was paid, and for how many orders. */
public final class Account extends Operation {
    private static final long serialVersionUID = 1;

    @Override
    void act(Connection database, HttpServletRequest request, Page page) throws SQLException {
        int dealer = number(request, "dealer");
        long[] account = row(database, "SELECT credit, balance, paid FROM dealer WHERE id = ? FOR UPDATE", dealer);
        page.begin("Credit", "Balance", "Paid").row(Page.money(account[0]), Page.money(account[1]), Page.money(account[2])).end();
        if (account[1] == 0) {
            page.line("Nothing is due");
            return;
        }
        int orders = change(database, "UPDATE orders SET state = 1 WHERE dealer = ? AND state = 0", dealer);
        change(database, "UPDATE dealer SET balance = 0, paid = paid + ? WHERE id = ?", account[1], dealer);
        page.line("Paid for " + orders + " orders: " + Page.money(account[1])).done(account[1], orders, 0);
    }
}
