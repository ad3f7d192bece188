package bigiron;

import java.util.ArrayDeque;
import java.util.TreeMap;

/** A warehouse: its districts, customers and stock, and the payments of its terminal. */
final class Warehouse {
    static final int DISTRICTS = 10;
    /** Payments that stay in the history. */
    private static final int KEPT = 1000;

    /** A payment in the history. */
    record Payment(int district, int customerWarehouse, int customer, long amount) {}

    final int id;
    final String name;
    final int taxPercent;
    final District[] districts = new District[DISTRICTS];
    /** Customers of all districts, by district and number. Other terminals may take payments from them. */
    final TreeMap<Integer, Customer> customers = new TreeMap<>();
    /** Stock by item. Other terminals may order from it. */
    final TreeMap<Integer, Stock> stock = new TreeMap<>();
    final ArrayDeque<Payment> history = new ArrayDeque<>();
    final int customersPerDistrict;
    /** Sums of the terminal, which the self-check compares with the data. */
    long paid;
    long payments;
    long quantityOrdered;

    Warehouse(int id, Item[] items, int customersPerDistrict, Draws draws) {
        this.id = id;
        this.customersPerDistrict = customersPerDistrict;
        name = Words.text(draws, 6, 10);
        taxPercent = draws.below(21);
        for (int d = 0; d < DISTRICTS; d++) {
            districts[d] = new District(d, draws);
            for (int c = 0; c < customersPerDistrict; c++) {
                customers.put(key(d, c), new Customer(c, draws));
            }
        }
        for (Item item : items) {
            stock.put(item.id(), new Stock(item, draws));
        }
    }

    static int key(int district, int customer) {
        return district * 1_000_000 + customer;
    }

    Customer customer(int district, int customer) {
        synchronized (customers) {
            return customers.get(key(district, customer));
        }
    }

    void remember(Payment payment) {
        history.add(payment);
        if (history.size() > KEPT) {
            history.poll();
        }
        paid += payment.amount();
        payments++;
    }
}
