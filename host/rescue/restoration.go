package rescue

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal"
)

// A new cluster begins from archives: each of its hosts restores the same ones into a directory that is new,
// before its first start. What results is a host that has met no other one, whose groups are not founded, and
// whose logs begin behind the archives' snapshots. The founding runs over that state as it does over none
// (founding.go): found and founded are the first entries of the log.
//
// Invariant: no two hosts found a group over different states. The number of the new cluster is derived
// from the archives as well as from the founders, so hosts with other archives, or without any, refuse each
// other at the hello, and so do the hosts of the old cluster. Invariant: a restored snapshot serves its own
// host only. It names the incarnation of this directory alone, and no founding, so no other member can
// install it.
//
// A file in the directory says that a restore is under way. It is durable before anything else is written,
// and removed when everything is, so a crash leaves a new directory, one that Open refuses, or a whole one.
//
// Decision 0017 has the reasons, and what was rejected.

// restoreNote is the content of identity.RestoringFile.
type restoreNote struct {
	Cluster uint64 `json:"cluster"`
}

// Restoration says what Restore has made.
type Restoration struct {
	Cluster uint64 // of the new cluster
	Groups  []RestoredGroup
}

// RestoredGroup is one group of it.
type RestoredGroup struct {
	Group, Index, Term uint64
	Bytes              int64  // of content
	FromCluster        uint64 // that the archive is of
}

// Restore makes c.Dir the directory of a host in a new cluster. Its groups begin with the state and the
// sessions in archives (Group.Export), at most one archive for each group. Call it once for every host of
// c.Members, with the same archives and the same Members, then Open the hosts with the same Config. The
// members of each group are the hosts of Members. Machines that keep their state on disk must begin empty.
//
// Cluster must not be that of an archive, and is best left 0: hosts that were restored from other archives
// are then refused, whatever the mistake. With a number of your own only the number is compared.
//
// A directory in which there is anything is refused. If Restore fails after it has begun to write,
// Open refuses the directory, and a later restore does: remove it.
func Restore(ctx context.Context, c host.Config, archives []io.Reader, o Options) (_ Restoration, err error) {
	if o, err = o.withDefaults(); err != nil {
		return Restoration{}, err
	}
	if err := c.Validate(); err != nil {
		return Restoration{}, err
	}
	if c.Dir, err = vfs.Absolute(o.FS, c.Dir); err != nil {
		return Restoration{}, identity.RelativePath("Config.Dir", err)
	}
	if c.Durability.Kind == wal.KindMemory {
		return Restoration{}, errors.New("millrace: a host with a log in memory cannot be restored: each of its starts would begin without the archive; choose another Config.Durability")
	}
	read, err := openArchives(archives)
	if err != nil {
		return Restoration{}, err
	}
	id := identity.Settings{Dir: c.Dir, Cluster: c.Cluster, ID: c.ID, Members: c.Members, Joins: c.Joins}.Founding()
	if id.Derived {
		id.Cluster = deriveRestored(id.Founders, read)
	}
	for _, a := range read {
		if a.manifest.Cluster == id.Cluster {
			return Restoration{}, fmt.Errorf("millrace: the archive of group %d is of cluster %d, and Config.Cluster is the same; a restore makes a new cluster: leave Config.Cluster 0, or choose another number", a.manifest.Group, id.Cluster)
		}
	}
	r := restore{options: o, config: c, id: id}
	return r.run(ctx, read)
}

// archive is an archive whose manifest was read.
type archive struct {
	reader   *snapshot.ArchiveReader
	manifest snapshot.Manifest
	hash     [sha256.Size]byte
	block    entry.Block
}

// openArchives reads the manifests, and returns the archives in the order of their groups.
func openArchives(archives []io.Reader) (read []archive, err error) {
	if len(archives) == 0 {
		return nil, errors.New("millrace: a restore needs an archive; a cluster without one is founded by Open")
	}
	for i, r := range archives {
		if r == nil {
			return nil, fmt.Errorf("millrace: archive %d is nil", i)
		}
		a := archive{}
		if a.reader, err = snapshot.OpenArchive(r); err != nil {
			return nil, fmt.Errorf("millrace: archive %d: %w", i, err)
		}
		if a.manifest = a.reader.Manifest(); a.manifest.Group == 0 {
			return nil, fmt.Errorf("millrace: archive %d is of group 0, and groups are numbered from 1: it was not written by Export", i)
		}
		a.hash = a.manifest.Hash()
		if a.block, err = entry.DecodeBlock(a.manifest.Host); err != nil {
			return nil, fmt.Errorf("millrace: archive %d, of group %d: %w", i, a.manifest.Group, err)
		}
		read = append(read, a)
	}
	slices.SortFunc(read, func(a, b archive) int { return cmp.Compare(a.manifest.Group, b.manifest.Group) })
	for i := 1; i < len(read); i++ {
		if read[i].manifest.Group == read[i-1].manifest.Group {
			return nil, fmt.Errorf("millrace: two archives are of group %d; give one for each group", read[i].manifest.Group)
		}
	}
	return read, nil
}

// deriveRestored derives the number of a cluster from its founders and from what it begins with. A manifest
// has the checksums of all content, so its hash names the archive.
func deriveRestored(founders []transport.Member, archives []archive) uint64 {
	sum := sha256.New()
	sum.Write([]byte("millrace: restored\n"))
	sum.Write(binary.LittleEndian.AppendUint64(nil, identity.DeriveCluster(founders)))
	for i := range archives {
		sum.Write(archives[i].hash[:])
	}
	return max(1, binary.LittleEndian.Uint64(sum.Sum(nil)))
}

// restore is one restore into one directory.
type restore struct {
	options Options
	config  host.Config
	id      identity.Identity
}

func (r *restore) run(ctx context.Context, archives []archive) (_ Restoration, err error) {
	fsys, dir := r.options.FS, r.config.Dir
	if err := fsys.MkdirAll(dir); err != nil {
		return Restoration{}, fmt.Errorf("millrace: make directory %s: %w", dir, err)
	}
	lock, err := fsys.Lock(filepath.Join(dir, "LOCK"))
	if err != nil {
		return Restoration{}, fmt.Errorf("millrace: open directory %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return Restoration{}, fmt.Errorf("millrace: read %s: %w", dir, err)
	}
	for _, name := range names {
		if name != "LOCK" && name != identity.RestoringFile+".new" && !isOfVolume(name) {
			return Restoration{}, fmt.Errorf("millrace: directory %s is not new, it has %q; a restore needs a directory with nothing in it: name another one, or move what is there away", dir, name)
		}
	}
	if err := identity.WriteFile(fsys, dir, identity.RestoringFile, restoreNote{Cluster: r.id.Cluster}); err != nil {
		return Restoration{}, err
	}
	done, err := r.fill(ctx, archives)
	if err != nil {
		return Restoration{}, fmt.Errorf("%w (%s holds a part of a restore and is of no use: remove it, and restore again)", err, dir)
	}
	return done, nil
}

// fill writes all that a directory of a host has. The directory is marked as unfinished.
func (r *restore) fill(ctx context.Context, archives []archive) (done Restoration, err error) {
	fsys, dir := r.options.FS, r.config.Dir
	open := r.options.OpenLog
	if open == nil {
		open = host.OpenWAL
	}
	log, err := open(host.LogConfig{
		FS: fsys, Dir: identity.LogDir(dir), Owner: r.config.ID, Scheduler: r.options.Env.Scheduler, Clock: r.options.Env.Clock, Secrets: r.options.Env.Secrets,
		Mode: r.config.Durability, SegmentBytes: r.config.SegmentBytes, CacheBytes: -1, Logger: r.options.Logger, Events: func(wal.Event) {},
	})
	if err != nil {
		return Restoration{}, err
	}
	r.id.Incarnation = transport.Incarnation(log.ID())
	done.Cluster = r.id.Cluster
	for i := range archives {
		group, failed := r.group(ctx, log, &archives[i])
		if failed != nil {
			return Restoration{}, errors.Join(failed, log.Close())
		}
		done.Groups = append(done.Groups, group)
	}
	if err := errors.Join(log.Sync(), log.Close()); err != nil {
		return Restoration{}, fmt.Errorf("millrace: write the log of the restored directory %s: %w", dir, err)
	}
	if err := identity.WriteFile(fsys, dir, identity.File, r.id); err != nil {
		return Restoration{}, err
	}
	if err := identity.RemoveFile(fsys, dir, identity.RestoringFile); err != nil {
		return Restoration{}, fmt.Errorf("millrace: remove %s in %s: %w", identity.RestoringFile, dir, err)
	}
	return done, nil
}

// group restores one group: its snapshot, and a log that begins behind it.
func (r *restore) group(ctx context.Context, log host.Log, a *archive) (_ RestoredGroup, err error) {
	m := r.manifest(a)
	fail := func(err error) (RestoredGroup, error) {
		return RestoredGroup{}, fmt.Errorf("millrace: restore group %d: %w", m.Group, err)
	}
	store, err := snapshot.OpenStore(r.options.FS, identity.SnapshotsDir(r.config.Dir, m.Group))
	if err != nil {
		return fail(err)
	}
	to, err := store.Receive(ctx, m)
	if err != nil {
		return fail(err)
	}
	for {
		part, block, raw, err := a.reader.Next()
		if err == io.EOF {
			break
		}
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err == nil {
			err = to.Put(part, block, raw)
		}
		if err != nil {
			return fail(errors.Join(err, to.Close()))
		}
	}
	if err := to.Finish(ctx); err != nil {
		return fail(errors.Join(err, to.Close()))
	}
	if err := to.Publish(); err != nil {
		return fail(err)
	}
	err = log.Append([]wal.Write{{Group: m.Group, HardState: raftpb.HardState{Term: m.Term, Commit: m.Index}, Snapshot: wal.Snapshot{Index: m.Index, Term: m.Term}}})
	if err != nil {
		return fail(err)
	}
	return RestoredGroup{Group: m.Group, Index: m.Index, Term: m.Term, Bytes: m.Bytes(), FromCluster: a.manifest.Cluster}, nil
}

// manifest returns the manifest that an archive gets in this directory.
func (r *restore) manifest(a *archive) snapshot.Manifest {
	m, block := a.manifest, a.block
	block.Found, block.Roster = nil, nil // this group is not founded yet
	m.Cluster, m.Host = r.id.Cluster, block.Encode()
	m.Conf, m.Members = raftpb.ConfState{Voters: r.id.FounderIDs()}, nil
	for _, id := range r.id.FounderIDs() {
		member := snapshot.Member{ID: id}
		if id == r.id.ID {
			member.Incarnation = r.id.Incarnation
		}
		m.Members = append(m.Members, member)
	}
	return m
}

// isOfVolume reports whether a name in a directory belongs to the volume: a directory that has such names
// only is new. lost+found is in the root of ext2 to ext4, and .snapshot in that of several network
// filesystems.
func isOfVolume(name string) bool { return name == "lost+found" || name == ".snapshot" }
