package millrace;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.apache.ratis.metrics.LongCounter;
import org.apache.ratis.metrics.MetricRegistries;
import org.apache.ratis.metrics.MetricRegistryInfo;
import org.apache.ratis.metrics.RatisMetricRegistry;
import org.apache.ratis.metrics.Timekeeper;
import org.apache.ratis.util.TimeDuration;

/** The library's metrics, of which only one is read: how often the logs were forced to the disk. */
public final class Counts extends MetricRegistries {
  /** The library starts this timer each time when it forces a log. */
  private static final String FORCE = "syncTime";

  private static final AtomicLong FORCES = new AtomicLong();

  static long forces() {
    return FORCES.get();
  }

  private final Map<MetricRegistryInfo, RatisMetricRegistry> registries = new ConcurrentHashMap<>();

  @Override
  public RatisMetricRegistry create(MetricRegistryInfo info) {
    return registries.computeIfAbsent(info, Registry::new);
  }

  @Override
  public Optional<RatisMetricRegistry> get(MetricRegistryInfo info) {
    return Optional.ofNullable(registries.get(info));
  }

  @Override
  public boolean remove(MetricRegistryInfo info) {
    return registries.remove(info) != null;
  }

  @Override
  public void clear() {
    registries.clear();
  }

  @Override
  public Set<MetricRegistryInfo> getMetricRegistryInfos() {
    return Set.copyOf(registries.keySet());
  }

  @Override
  public Collection<RatisMetricRegistry> getMetricRegistries() {
    return List.copyOf(registries.values());
  }

  @Override
  public void addReporterRegistration(Consumer<RatisMetricRegistry> add, Consumer<RatisMetricRegistry> remove) {}

  @Override
  public void enableJmxReporter() {}

  @Override
  public void enableConsoleReporter(TimeDuration every) {}

  private record Registry(MetricRegistryInfo info) implements RatisMetricRegistry {
    private static final Timekeeper.Context STOPPED = () -> 0;

    @Override
    public Timekeeper timer(String name) {
      if (!name.endsWith(FORCE)) {
        return () -> STOPPED;
      }
      return () -> {
        FORCES.incrementAndGet();
        return STOPPED;
      };
    }

    @Override
    public LongCounter counter(String name) {
      AtomicLong count = new AtomicLong();
      return new LongCounter() {
        @Override
        public void inc(long n) {
          count.addAndGet(n);
        }

        @Override
        public void dec(long n) {
          count.addAndGet(-n);
        }

        @Override
        public long getCount() {
          return count.get();
        }
      };
    }

    @Override
    public boolean remove(String name) {
      return false;
    }

    @Override
    public <T> void gauge(String name, Supplier<Supplier<T>> value) {}

    @Override
    public MetricRegistryInfo getMetricRegistryInfo() {
      return info;
    }
  }
}
