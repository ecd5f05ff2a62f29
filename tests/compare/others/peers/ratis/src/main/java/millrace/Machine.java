package millrace;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.ratis.proto.RaftProtos.LogEntryProto;
import org.apache.ratis.protocol.Message;
import org.apache.ratis.statemachine.TransactionContext;
import org.apache.ratis.statemachine.impl.BaseStateMachine;

/**
 * The state machine and the check of every child (cmd/internal/lab/load/machine.go): a hash over all that was applied,
 * in order, and a bit for each write.
 */
final class Machine extends BaseStateMachine {
  private long applied;
  private long entries;
  private long hash;
  private final List<BitSet> clients = new ArrayList<>();
  private String broken;

  @Override
  public CompletableFuture<Message> applyTransaction(TransactionContext transaction) {
    LogEntryProto entry = transaction.getLogEntry();
    apply(entry.getIndex(), Values.parse(entry.getStateMachineLogEntry().getLogData().asReadOnlyByteBuffer()));
    updateLastAppliedTermIndex(entry.getTerm(), entry.getIndex());
    return CompletableFuture.completedFuture(Message.EMPTY);
  }

  private synchronized void apply(long index, Values.Id id) {
    if (index <= applied) {
      breakWith("entry " + index + " was applied after entry " + applied);
    }
    applied = index;
    entries++;
    if (id == null) {
      breakWith("entry " + index + " is not a value that a client sent");
      return;
    }
    long h = mix(hash ^ index);
    h = mix(h ^ ((long) id.client() << 32 | id.sum() & 0xffffffffL));
    hash = mix(h ^ id.seq());
    while (clients.size() <= id.client()) {
      clients.add(new BitSet());
    }
    BitSet seen = clients.get(id.client());
    if (seen.get((int) id.seq())) {
      breakWith("write " + id.seq() + " of client " + id.client() + " was applied twice, the second time at index " + index);
    }
    seen.set((int) id.seq());
  }

  private void breakWith(String why) {
    broken = broken == null ? why : broken;
  }

  /** Finalizer of splitmix64. */
  private static long mix(long x) {
    x += 0x9e3779b97f4a7c15L;
    x = (x ^ x >>> 30) * 0xbf58476d1ce4e5b9L;
    x = (x ^ x >>> 27) * 0x94d049bb133111ebL;
    return x ^ x >>> 31;
  }

  /** Position and content. */
  record State(long entries, long hash) {}

  synchronized State state() {
    return new State(entries, hash);
  }

  /**
   * Compares with what the clients know: client c has sent sent[c] writes, of which the first acknowledged[c] were
   * answered. Returns what is wrong, or null.
   */
  synchronized String verify(long[] sent, long[] acknowledged) {
    if (broken != null) {
      return broken;
    }
    for (int c = 0; c < sent.length; c++) {
      BitSet have = c < clients.size() ? clients.get(c) : new BitSet();
      if (have.nextClearBit(0) < acknowledged[c]) {
        return "write " + have.nextClearBit(0) + " of client " + c + " was acknowledged and is not there";
      }
      if (have.length() > sent[c]) {
        return "write " + (have.length() - 1) + " of client " + c + " is there and was never sent";
      }
    }
    return null;
  }
}
