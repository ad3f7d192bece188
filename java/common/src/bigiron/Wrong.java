package bigiron;

/** Wrong data. */
final class Wrong extends RuntimeException {
    private static final long serialVersionUID = 1;

    Wrong(String message) {
        super(message);
    }
}
