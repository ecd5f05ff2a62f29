package proposals

import (
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/raft/raftpb"
)

// Which commands share an entry of the log (decision 0038). Queue.Next puts those of this host's clients
// together. Forwarded commands, and commands that are proposed once more, come as entries of one command
// each: Pack joins them. Both obey sharesEntry.

// largeCommand is the size of a command that is an entry of its own: its bytes are not copied into another.
const largeCommand = 64 << 10

// sharesEntry reports whether a command may be in one entry with n others that have some bytes. size is that
// of the command with its header.
func (s *Settings) sharesEntry(command []byte, size, n, bytes int) bool {
	bytes += size + raftpb.BatchOverheadBytes + (n+1)*raftpb.CommandOverheadBytes
	return bytes <= s.MaxBytes && n < raftpb.MaxBatchCommands && size < largeCommand && (s.Alone == nil || !s.Alone(command))
}

// Pack joins neighbours among entries, each with one command of a call, that may share an entry. It returns
// a prefix of the slice, and all commands in their order.
func (s *Settings) Pack(entries []raftpb.Entry, j *raftpb.Joiner) (packed []raftpb.Entry) {
	packed = entries[:0]
	for rest := entries; len(rest) > 0; {
		n, bytes := 0, 0
		for n < len(rest) && s.entryShares(rest[n].Data, n, bytes) {
			bytes += len(rest[n].Data)
			n++
		}
		if n > 1 {
			rest[n-1] = j.Join(rest[:n])
			rest = rest[n-1:]
		}
		packed, rest = append(packed, rest[0]), rest[1:]
	}
	clear(entries[len(packed):])
	return packed
}

// entryShares is sharesEntry for the data of an entry with one command.
func (s *Settings) entryShares(data []byte, n, bytes int) bool {
	command := data
	if s.Alone != nil {
		_, command, _ = session.Decode(data)
	}
	return s.sharesEntry(command, len(data), n, bytes)
}
