/** Snowflake ids under the number that `allocator worker run` leased: java Ids.java COUNT */
public class Ids {
    static final long WORKER = Long.parseLong(System.getenv("WORKER_ID"));
    static long last = System.currentTimeMillis(), sequence = 4095;  // begin with the next millisecond

    static synchronized long next() {
        long now = System.currentTimeMillis();
        if (now < last) throw new IllegalStateException("the clock went back by " + (last - now) + " ms");
        if (now == last && ++sequence > 4095) while (now <= last) now = System.currentTimeMillis();
        if (now > last) sequence = 0;
        last = now;
        return now - 1288834974657L << 22 | WORKER << 12 | sequence;
    }

    public static void main(String[] words) {
        for (int n = Integer.parseInt(words[0]); n > 0; n--) System.out.println(next());
    }
}
