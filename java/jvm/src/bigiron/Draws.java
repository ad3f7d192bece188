package bigiron;

/** Random draws (SplitMix64): the same seed and stream give the same draws on every machine. */
final class Draws {
    private long state;

    Draws(long seed, long stream) {
        state = seed ^ mix(stream + 0x9E3779B97F4A7C15L);
    }

    long next() {
        state += 0x9E3779B97F4A7C15L;
        return mix(state);
    }

    /** From 0 to {@code bound - 1}. */
    int below(int bound) {
        return (int) ((next() >>> 33) * bound >>> 31);
    }

    /** From {@code least} to {@code most}. */
    int from(int least, int most) {
        return least + below(most - least + 1);
    }

    /** Some numbers are drawn more often than others, as in TPC-C (clause 2.1.6): {@code skew} is a power of two minus one. */
    int skewed(int skew, int bound) {
        return (below(skew + 1) | below(bound)) % bound;
    }

    private static long mix(long z) {
        z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
        z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
        return z ^ (z >>> 31);
    }
}
