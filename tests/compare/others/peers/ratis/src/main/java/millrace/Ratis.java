package millrace;

import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.ratis.client.RaftClient;
import org.apache.ratis.client.RaftClientConfigKeys;
import org.apache.ratis.conf.RaftProperties;
import org.apache.ratis.grpc.GrpcConfigKeys;
import org.apache.ratis.protocol.RaftGroup;
import org.apache.ratis.protocol.RaftGroupId;
import org.apache.ratis.protocol.RaftPeer;
import org.apache.ratis.server.RaftServer;
import org.apache.ratis.server.RaftServerConfigKeys;
import org.apache.ratis.util.TimeDuration;

/**
 * The child of `millrace bench peers` for Apache Ratis: three servers and their clients in one process, over gRPC. The
 * log has the library's defaults, which force it to the disk before an entry counts. Its argument is always "default".
 */
public final class Ratis {
  /** What Millrace asks for: child.Request in Go. */
  record Request(String dir, int hosts, int clients, int valueBytes, long warmupNanos, long lengthNanos, long seed) {}

  private static final String LOOPBACK = "127.0.0.1";
  private static final int MAX_CONNECTIONS = 8; // of all clients
  private static final int OUTSTANDING = 4096; // of one connection
  private static final int ELECTION_MILLIS = 3000; // which a busy disk does not reach

  private final List<RaftServer> servers = new ArrayList<>();
  private final List<Machine> machines = new ArrayList<>();
  private final List<RaftClient> connections = new ArrayList<>();

  public static void main(String[] args) throws Exception {
    if (args.length != 1 || !args[0].equals("default")) {
      System.err.println("usage: Ratis default, with a request on the standard input");
      System.exit(2);
    }
    String answer;
    try {
      Request request = parse(new String(System.in.readAllBytes(), StandardCharsets.UTF_8));
      Ratis ratis = new Ratis();
      ratis.start(request);
      answer = "{\"result\":" + new Load(request, ratis.connections).run(ratis.machines) + "}";
    } catch (Load.Mismatch e) {
      answer = "{\"error\":" + quote(e.getMessage()) + ",\"mismatch\":true}";
    } catch (Exception e) {
      answer = "{\"error\":" + quote(e.toString()) + "}";
    }
    System.out.println(answer);
    System.out.flush();
    Runtime.getRuntime().halt(0); // to close the servers takes seconds, and nothing is kept
  }

  private void start(Request request) throws Exception {
    List<RaftPeer> peers = new ArrayList<>();
    List<Integer> ports = new ArrayList<>();
    for (int i = 0; i < request.hosts(); i++) {
      int port = freePort();
      ports.add(port);
      peers.add(RaftPeer.newBuilder().setId("s" + (i + 1)).setAddress(LOOPBACK + ":" + port).setPriority(i == 0 ? 1 : 0).build());
    }
    RaftGroup group = RaftGroup.valueOf(RaftGroupId.valueOf(UUID.randomUUID()), peers);
    for (int i = 0; i < peers.size(); i++) {
      Machine machine = new Machine();
      machines.add(machine);
      RaftServer server = RaftServer.newBuilder().setServerId(peers.get(i).getId()).setGroup(group).setStateMachine(machine)
          .setProperties(serverProperties(ports.get(i), Path.of(request.dir(), "server-" + (i + 1)))).build();
      server.start();
      servers.add(server);
    }
    awaitLeader(group.getGroupId());
    RaftProperties properties = new RaftProperties();
    RaftClientConfigKeys.Async.setOutstandingRequestsMax(properties, OUTSTANDING);
    for (int i = 0; i < Math.min(request.clients(), MAX_CONNECTIONS); i++) {
      connections.add(RaftClient.newBuilder().setRaftGroup(group).setLeaderId(peers.get(0).getId()).setProperties(properties).build());
    }
  }

  private static RaftProperties serverProperties(int port, Path dir) {
    RaftProperties properties = new RaftProperties();
    GrpcConfigKeys.Server.setHost(properties, LOOPBACK);
    GrpcConfigKeys.Server.setPort(properties, port);
    RaftServerConfigKeys.setStorageDir(properties, List.of(dir.toFile()));
    RaftServerConfigKeys.Rpc.setTimeoutMin(properties, TimeDuration.valueOf(ELECTION_MILLIS, TimeUnit.MILLISECONDS));
    RaftServerConfigKeys.Rpc.setTimeoutMax(properties, TimeDuration.valueOf(2 * ELECTION_MILLIS, TimeUnit.MILLISECONDS));
    return properties;
  }

  /** A port that was free a moment ago: all members have to know it before one listens. */
  private static int freePort() throws Exception {
    try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getByName(LOOPBACK))) {
      return socket.getLocalPort();
    }
  }

  /** Waits until the first server, which has priority, leads and is ready. */
  private void awaitLeader(RaftGroupId group) throws Exception {
    long began = System.nanoTime();
    while (!servers.get(0).getDivision(group).getInfo().isLeaderReady()) {
      if (System.nanoTime() - began > 30e9) {
        throw new Exception("the first server does not lead after 30 s");
      }
      Thread.sleep(5);
    }
  }

  private static Request parse(String json) throws Exception {
    Request r = new Request(field(json, "dir", "\"([^\"]*)\""), (int) number(json, "hosts"), (int) number(json, "clients"),
        (int) number(json, "value_bytes"), number(json, "warmup_ns"), number(json, "length_ns"), number(json, "seed"));
    if (r.dir().isEmpty() || r.hosts() < 1 || r.clients() < 1 || r.valueBytes() < Values.MIN_BYTES || r.lengthNanos() <= 0) {
      throw new Exception("the request " + json + " makes no sense");
    }
    return r;
  }

  private static long number(String json, String name) {
    String digits = field(json, name, "(\\d+)");
    return digits.isEmpty() ? 0 : Long.parseLong(digits);
  }

  private static String field(String json, String name, String form) {
    Matcher m = Pattern.compile("\"" + name + "\"\\s*:\\s*" + form).matcher(json);
    return m.find() ? m.group(1) : "";
  }

  private static String quote(String text) {
    return "\"" + text.replace("\\", "\\\\").replace("\"", "'").replaceAll("\\s+", " ") + "\"";
  }
}
