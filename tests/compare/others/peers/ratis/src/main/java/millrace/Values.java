package millrace;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Random;
import java.util.zip.CRC32C;

/**
 * Values as the clients of every child make them (cmd/internal/lab/load/value.go): magic, client, sequence, CRC32C of
 * the payload, check of the header, payload.
 */
final class Values {
  static final int MIN_BYTES = 32;
  private static final int HEADER_BYTES = 24;
  private static final int MAGIC = 0x6d696c6c;
  private static final int OFFSETS = 64;

  private final int valueBytes;
  private final byte[] block;
  private final int[] checksums = new int[OFFSETS];

  Values(int valueBytes, long seed) {
    this.valueBytes = valueBytes;
    int payload = valueBytes - HEADER_BYTES;
    block = new byte[payload + OFFSETS];
    new Random(seed).nextBytes(block);
    for (int at = 0; at < OFFSETS; at++) {
      checksums[at] = sum(ByteBuffer.wrap(block, at, payload));
    }
  }

  byte[] value(int client, long seq) {
    int at = (int) ((seq + client) % OFFSETS);
    ByteBuffer v = ByteBuffer.allocate(valueBytes).order(ByteOrder.LITTLE_ENDIAN);
    v.putInt(MAGIC).putInt(client).putLong(seq).putInt(checksums[at]);
    v.putInt(sum(ByteBuffer.wrap(v.array(), 0, 20)));
    v.put(block, at, valueBytes - HEADER_BYTES);
    return v.array();
  }

  /** What the header of a value says. */
  record Id(int client, long seq, int sum) {}

  /** Returns the id of a value, or null if these are not the bytes that a client sent. */
  static Id parse(ByteBuffer value) {
    ByteBuffer v = value.duplicate().order(ByteOrder.LITTLE_ENDIAN);
    if (v.remaining() < HEADER_BYTES) {
      return null;
    }
    int at = v.position();
    if (v.getInt(at) != MAGIC || v.getInt(at + 20) != sum(v.duplicate().limit(at + 20))) {
      return null;
    }
    int sum = sum(v.duplicate().position(at + HEADER_BYTES));
    return sum == v.getInt(at + 16) ? new Id(v.getInt(at + 4), v.getLong(at + 8), sum) : null;
  }

  private static int sum(ByteBuffer of) {
    CRC32C crc = new CRC32C();
    crc.update(of);
    return (int) crc.getValue();
  }
}
