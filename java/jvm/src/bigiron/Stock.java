package bigiron;

/** The stock of an item in a warehouse. Guarded by the warehouse's {@code stock}. */
final class Stock {
    final Item item;
    final String district;
    int quantity;
    long ordered;
    int orders;

    Stock(Item item, Draws draws) {
        this.item = item;
        quantity = draws.from(10, 100);
        district = Words.text(draws, 24, 24);
    }

    void take(int wanted) {
        quantity -= wanted;
        if (quantity < 10) {
            quantity += 91;
        }
        ordered += wanted;
        orders++;
    }
}
