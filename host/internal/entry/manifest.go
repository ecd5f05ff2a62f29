package entry

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/snapshot"
)

// ManifestMembers returns what the manifest of a snapshot says of the members.
func ManifestMembers(r *membership.Roster) (members []snapshot.Member) {
	for _, m := range r.Members {
		members = append(members, snapshot.Member{ID: m.ID, Incarnation: m.Incarnation})
	}
	return members
}

// RejectConf says why the configuration of a snapshot is not that of the roster that it has, or returns nil.
func RejectConf(m *snapshot.Manifest) error {
	block, err := DecodeBlock(m.Host)
	if err != nil {
		return fmt.Errorf("snapshot %v: %w", m.ID(), err)
	}
	if len(block.Found) == 0 {
		return nil // it was restored from an archive (Group.rejectRestored)
	}
	if m.Conf.Equivalent(block.Roster.Conf) != nil {
		return fmt.Errorf("snapshot %v has the configuration %s, and its members have %s", m.ID(), raft.DescribeConfState(m.Conf), raft.DescribeConfState(block.Roster.Conf))
	}
	if !slices.Equal(m.Members, ManifestMembers(block.Roster)) {
		return fmt.Errorf("snapshot %v names other members than its host has written into it", m.ID())
	}
	return nil
}
