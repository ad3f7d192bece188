package bigiron.app;

import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import jakarta.servlet.http.HttpSession;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import javax.naming.InitialContext;
import javax.naming.NamingException;
import javax.sql.DataSource;

/** A servlet whose requests are a transaction of the database each, and whose pages say in their first line what was done. */
abstract class Operation extends HttpServlet {
    private static final long serialVersionUID = 1;

    private transient DataSource pool;
    private int sessionBytes;

    /** Works on a connection, which is committed afterwards. */
    abstract void act(Connection database, HttpServletRequest request, Page page) throws SQLException;

    @Override
    public void init() throws ServletException {
        sessionBytes = Integer.parseInt(getServletContext().getInitParameter("session-bytes"));
        try {
            pool = (DataSource) new InitialContext().lookup("java:comp/env/jdbc/business");
            // The pool opens all of its connections now.
            pool.getConnection().close();
        } catch (NamingException | SQLException error) {
            throw new ServletException("No connection to the database: " + error.getMessage(), error);
        }
    }

    @Override
    protected void service(HttpServletRequest request, HttpServletResponse response) throws ServletException, IOException {
        Page page = new Page(getServletName());
        try (Connection database = pool.getConnection()) {
            try {
                act(database, request, page);
                database.commit();
            } catch (SQLException | RuntimeException error) {
                database.rollback();
                throw error;
            }
        } catch (SQLException error) {
            throw new ServletException(error.getMessage(), error);
        }
        // The factory and the suppliers have none.
        if (sessionBytes > 0 && request.getRequestedSessionId() != null) {
            remember(request.getSession(), page);
        }
        byte[] bytes = page.bytes();
        response.setContentType("text/html;charset=UTF-8");
        response.setContentLength(bytes.length);
        response.getOutputStream().write(bytes);
    }

    /** Keeps the beginning of the page in the session, as a shop keeps a cart. */
    private void remember(HttpSession session, Page page) {
        byte[] state = new byte[sessionBytes];
        byte[] last = (byte[]) session.getAttribute("state");
        byte[] text = page.toString().getBytes(StandardCharsets.UTF_8);
        int length = Math.min(text.length, state.length);
        System.arraycopy(text, 0, state, 0, length);
        if (last != null) {
            System.arraycopy(last, 0, state, length, state.length - length);
        }
        session.setAttribute("state", state);
    }

    static int number(HttpServletRequest request, String name) {
        return Integer.parseInt(request.getParameter(name));
    }

    /** Runs a statement with these numbers; returns the rows that it changed. */
    static int change(Connection database, String sql, long... values) throws SQLException {
        try (PreparedStatement statement = database.prepareStatement(sql)) {
            set(statement, values);
            return statement.executeUpdate();
        }
    }

    /** The first row of a query with these numbers; {@code null} if there is none. */
    static long[] row(Connection database, String sql, long... values) throws SQLException {
        try (PreparedStatement statement = database.prepareStatement(sql)) {
            set(statement, values);
            try (ResultSet rows = statement.executeQuery()) {
                if (!rows.next()) {
                    return null;
                }
                long[] row = new long[rows.getMetaData().getColumnCount()];
                for (int n = 0; n < row.length; n++) {
                    row[n] = rows.getLong(n + 1);
                }
                return row;
            }
        }
    }

    static void set(PreparedStatement statement, long... values) throws SQLException {
        for (int n = 0; n < values.length; n++) {
            statement.setLong(n + 1, values[n]);
        }
    }

    /** The same as {@link #change}; returns the number that the database gave to the new row. */
    static long insert(Connection database, String sql, long... values) throws SQLException {
        try (PreparedStatement statement = database.prepareStatement(sql, new String[] {"id"})) {
            set(statement, values);
            statement.executeUpdate();
            try (ResultSet keys = statement.getGeneratedKeys()) {
                keys.next();
                return keys.getLong(1);
            }
        }
    }
}
