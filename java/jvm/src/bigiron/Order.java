package bigiron;

/** An order with its lines. Guarded by its district. */
final class Order {
    /** A line of an order. */
    record Line(Item item, int supplier, int quantity, long amount) {}

    final int id;
    final Customer customer;
    final Line[] lines;
    /** In cents, after discount and tax. */
    final long total;
    int carrier;

    Order(int id, Customer customer, Line[] lines, long total) {
        this.id = id;
        this.customer = customer;
        this.lines = lines;
        this.total = total;
    }

    int quantity() {
        int sum = 0;
        for (Line line : lines) {
            sum += line.quantity();
        }
        return sum;
    }
}
