package millrace;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.ratis.client.RaftClient;
import org.apache.ratis.protocol.Message;
import org.apache.ratis.protocol.RaftClientReply;
import org.apache.ratis.thirdparty.com.google.protobuf.UnsafeByteOperations;

/**
 * Clients in a closed loop, the clock and the check: those of cmd/internal/lab/load. An operation that starts in the
 * window is in the latencies; one that ends in the window counts for the throughput. A client is a chain of calls of
 * the library's asynchronous API.
 */
final class Load {
  private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(30);
  private static final long POLL_MILLIS = 2;

  private final Ratis.Request request;
  private final List<RaftClient> connections;
  private final Values values;
  private final long[] sent;
  private final long[] acknowledged;
  private final Latencies[] latencies;
  private final AtomicLong completed = new AtomicLong();
  private final AtomicLong failed = new AtomicLong();
  private final CountDownLatch running;
  private volatile Throwable lastFailure;
  private long origin;

  Load(Ratis.Request request, List<RaftClient> connections) {
    this.request = request;
    this.connections = connections;
    values = new Values(request.valueBytes(), request.seed());
    sent = new long[request.clients()];
    acknowledged = new long[request.clients()];
    latencies = new Latencies[request.clients()];
    Arrays.setAll(latencies, c -> new Latencies());
    running = new CountDownLatch(request.clients());
  }

  /** The latencies of one client, in nanoseconds. */
  private static final class Latencies {
    private long[] of = new long[64];
    private int n;

    void add(long nanos) {
      of = n < of.length ? of : Arrays.copyOf(of, 2 * n);
      of[n++] = nanos;
    }
  }

  private long now() {
    return System.nanoTime() - origin;
  }

  private long end() {
    return request.warmupNanos() + request.lengthNanos();
  }

  private boolean inWindow(long t) {
    return t >= request.warmupNanos() && t < end();
  }

  /** Returns the result as JSON. */
  String run(List<Machine> machines) throws Exception {
    origin = System.nanoTime();
    for (int c = 0; c < request.clients(); c++) {
      next(c);
    }
    sleepUntil(request.warmupNanos());
    long cpu = cpuNanos();
    long forces = Counts.forces();
    sleepUntil(end());
    cpu = cpuNanos() - cpu;
    forces = Counts.forces() - forces;
    if (!running.await(PATIENCE_NANOS, TimeUnit.NANOSECONDS)) {
      throw new Exception("writes were still unanswered 30 s after the last was sent");
    }
    verify(machines);
    return result(cpu, forces);
  }

  private void sleepUntil(long t) throws InterruptedException {
    for (long left = t - now(); left > 0; left = t - now()) {
      TimeUnit.NANOSECONDS.sleep(left);
    }
  }

  private static long cpuNanos() {
    return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
  }

  /** Makes the next write of a client. The end of one write is the start of the next. */
  private void next(int client) {
    long start = now();
    if (start >= end()) {
      running.countDown();
      return;
    }
    byte[] value = values.value(client, sent[client]++);
    connections.get(client % connections.size()).async()
        .send(Message.valueOf(UnsafeByteOperations.unsafeWrap(value)))
        .whenComplete((reply, failure) -> done(client, start, reply, failure));
  }

  private void done(int client, long start, RaftClientReply reply, Throwable failure) {
    long end = now();
    if (failure != null || !reply.isSuccess()) {
      lastFailure = failure != null ? failure : reply.getException();
      failed.incrementAndGet();
      // Its writes are counted from the start, so a client that does not know of one stops.
      running.countDown();
      return;
    }
    acknowledged[client]++;
    if (inWindow(start)) {
      latencies[client].add(end - start);
    }
    if (inWindow(end)) {
      completed.incrementAndGet();
    }
    next(client);
  }

  /** Waits until all machines have applied the same, and compares them with what the clients know. */
  private void verify(List<Machine> machines) throws Exception {
    long want = Arrays.stream(acknowledged).sum();
    for (long began = System.nanoTime(); ; TimeUnit.MILLISECONDS.sleep(POLL_MILLIS)) {
      List<Machine.State> states = machines.stream().map(Machine::state).toList();
      Machine.State first = states.get(0);
      if (states.stream().allMatch(s -> s.entries() == first.entries()) && first.entries() >= want) {
        if (!states.stream().allMatch(first::equals)) {
          throw new Mismatch("the servers differ: " + states);
        }
        break;
      }
      if (System.nanoTime() - began > PATIENCE_NANOS) {
        throw new Mismatch(want + " writes were acknowledged, and the servers are at " + states);
      }
    }
    for (int i = 0; i < machines.size(); i++) {
      String wrong = machines.get(i).verify(sent, acknowledged);
      if (wrong != null) {
        throw new Mismatch("server " + (i + 1) + ": " + wrong);
      }
    }
  }

  /** A write that was lost, doubled or damaged. */
  static final class Mismatch extends Exception {
    Mismatch(String why) {
      super(why);
    }
  }

  private String result(long cpuNanos, long forces) throws Exception {
    long[] all = Arrays.stream(latencies).flatMapToLong(l -> Arrays.stream(l.of, 0, l.n)).sorted().toArray();
    double ops = completed.get();
    if (ops == 0 || all.length == 0) {
      throw new Exception("no write was acknowledged in the window, and " + failed.get() + " failed, the last with " + lastFailure);
    }
    double seconds = request.lengthNanos() / 1e9;
    return String.format(Locale.ROOT,
        "{\"ops\":%d,\"ops_per_sec\":%f,\"mean_us\":%f,\"p50_us\":%f,\"p90_us\":%f,\"p99_us\":%f,\"p999_us\":%f,\"max_us\":%f,"
            + "\"fsyncs_per_op\":%f,\"cpu_us_per_op\":%f,\"duration_s\":%f,\"warmup_s\":%f,\"failed\":%d}",
        completed.get(), ops / seconds, Arrays.stream(all).average().orElse(0) / 1e3,
        quantile(all, 0.5), quantile(all, 0.9), quantile(all, 0.99), quantile(all, 0.999), quantile(all, 1),
        forces / ops, cpuNanos / 1e3 / ops, seconds, request.warmupNanos() / 1e9, failed.get());
  }

  private static double quantile(long[] sorted, double q) {
    return sorted[(int) ((sorted.length - 1) * q)] / 1e3;
  }
}
