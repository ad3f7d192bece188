package bigiron;

/** A customer of a district. Money is in cents. Guarded by its warehouse's {@code customers}. */
final class Customer {
    final int id;
    final String last;
    final String first;
    final String street;
    final String city;
    final int discountPercent;
    long balance;
    long paid;
    int payments;
    int deliveries;
    String data;
    /** The number of the last order, 0 before the first. */
    int lastOrder;

    Customer(int id, Draws draws) {
        this.id = id;
        last = Words.last(id < 1000 ? id : draws.below(1000));
        first = Words.text(draws, 8, 16);
        street = Words.text(draws, 10, 20);
        city = Words.text(draws, 10, 20);
        discountPercent = draws.below(51);
        data = Words.text(draws, 60, 120);
    }
}
