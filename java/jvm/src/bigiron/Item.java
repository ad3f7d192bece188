package bigiron;

/** An item of the catalogue, which all warehouses share. */
record Item(int id, String name, long price, String data) {
    static Item drawn(int id, Draws draws) {
        return new Item(id, Words.text(draws, 14, 24), draws.from(100, 10_000), Words.text(draws, 26, 50));
    }
}
