package snapshots

import "math"

// Policy says when a group takes snapshots by itself, and how much of its log stays behind one.
type Policy struct {
	LogBytes    int64 // by which the log grows between two snapshots; 0: the default
	KeepBytes   int64 // of the log that stay behind a snapshot; 0: the default
	MaxLogBytes int64 // bound of both defaults, which grow with the snapshot; 0: none
	Every       int64 // ticks after which one is taken if anything was applied; 0: none because of time
	Disabled    bool  // none is taken unless a caller asks
}

const (
	defaultLogBytes = 64 << 20
	logPerSnapshot  = 4       // bytes of the log for each byte of the last snapshot
	maxTransferCost = 1 << 20 // what sending a snapshot costs besides its bytes, in bytes of log
)

// Interval is by how many bytes the log grows from the last snapshot, or nil, to the next.
func (p Policy) Interval(last *Published) int64 {
	switch {
	case p.LogBytes > 0:
		return p.LogBytes
	case last != nil:
		return max(defaultLogBytes, p.bounded(min(last.Bytes, math.MaxInt64/logPerSnapshot)*logPerSnapshot))
	}
	return defaultLogBytes
}

// bounded returns a default that has grown with the snapshot, or its bound.
func (p Policy) bounded(bytes int64) int64 {
	if p.MaxLogBytes > 0 {
		return min(bytes, p.MaxLogBytes)
	}
	return bytes
}

// Kept is how many bytes of the log stay behind a snapshot. A follower that is far behind gets the snapshot,
// others are fed from the log. So the log keeps what costs less to send than the snapshot.
func (p Policy) Kept(s *Published) int64 {
	if p.KeepBytes > 0 {
		return p.KeepBytes
	}
	return max(p.bounded(s.Bytes), min(maxTransferCost, p.Interval(s)/4))
}
