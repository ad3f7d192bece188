package bigiron;

/** Names and texts. */
final class Words {
    private static final String[] SYLLABLES = {
        "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"
    };

    private Words() {}

    /** A last name of three syllables, as in TPC-C (clause 4.3.2.3). */
    static String last(int number) {
        return SYLLABLES[number / 100 % 10] + SYLLABLES[number / 10 % 10] + SYLLABLES[number % 10];
    }

    static String text(Draws draws, int least, int most) {
        byte[] letters = new byte[draws.from(least, most)];
        for (int i = 0; i < letters.length; i++) {
            letters[i] = (byte) ('a' + draws.below(26));
        }
        return new String(letters, java.nio.charset.StandardCharsets.ISO_8859_1);
    }
}
