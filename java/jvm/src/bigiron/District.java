package bigiron;

import java.util.ArrayDeque;
import java.util.TreeMap;

/** A district of a warehouse with its orders. Only the terminal of its warehouse works on it. */
final class District {
    /** Delivered orders that stay: older ones are removed, so that live data do not grow with time. */
    private static final int KEPT = 100;

    final int id;
    final int taxPercent;
    final TreeMap<Integer, Order> orders = new TreeMap<>();
    /** Orders that are not delivered, oldest first. */
    final ArrayDeque<Order> undelivered = new ArrayDeque<>();
    int nextOrder = 1;
    long paid;
    long delivered;
    long deliveredTotal;
    long removedOrders;
    long removedQuantity;

    District(int id, Draws draws) {
        this.id = id;
        taxPercent = draws.below(21);
    }

    void add(Order order) {
        orders.put(order.id, order);
        undelivered.add(order);
    }

    /** Removes the oldest orders, all of which are delivered. */
    void trim() {
        while (orders.size() - undelivered.size() > KEPT) {
            Order oldest = orders.pollFirstEntry().getValue();
            removedOrders++;
            removedQuantity += oldest.quantity();
        }
    }
}
