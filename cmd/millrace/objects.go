package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/object/files"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal/inspect"
)

var objectsLong = `objects looks at the large objects on the disk of a host. DIR is the directory that Millrace was opened with.

list and verify only read, and take no lock. Beside a running host the answer is that of a moment: an object that the host writes,
receives or removes meanwhile may look unfinished or damaged. Ask again, or stop the host. scrub asks a running host, which fetches
what is damaged again.

What is on the disk of one host says nothing about the group: which objects it has, and who keeps them, is in its log.

` + objectsExitHelp()

func newObjects(a app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "objects",
		Short: "Look at the large objects of a host: list, verify, scrub",
		Long:  objectsLong,
		Example: `  millrace objects list /var/lib/app                which are there, and how large?
  millrace objects verify /var/lib/app              are they whole?
  millrace objects scrub /var/lib/app               the same for a running host, which mends what it can
  millrace objects verify /var/lib/app --group 7 --object 21ff37a19f72352467202a64110ce3db`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newObjectsList(a), newObjectsVerify(a), newObjectsScrub(a))
	for _, sub := range append(cmd.Commands(), cmd) {
		sub.Flags().SortFlags = false
	}
	return cmd
}

const objectsJSON = `A state is one of

  whole       everything is there
  receiving   received in part; the host fetches the rest when it runs
  unfinished  what a crash has left of an upload; the next start removes it
  damaged     what is there is not what was stored; docs/operate/objects.md says what to do

JSON: dir, verified, objects [{group, id, state, bytes, hash, dir, damage {file, offset, what}}]. hash is that of the manifest: objects with
equal hashes have equal contents. offset is missing if the file as a whole is wrong.

`

func newObjectsList(a app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list DIR", Short: "Which objects are on the disk", Args: wantArgs(1, "one directory"),
		Long: `list says of each object in which group it is, how large, and whether it is there whole. It reads the manifests and the lengths of
the parts, and not the content: verify does.

` + objectsJSON + objectsExitHelp(),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := files.Find(cmd.Context(), vfs.OS(), args[0])
			if err != nil {
				return cannot(err)
			}
			return answer(a, describeObjects(args[0], found, false), asJSON)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func newObjectsVerify(a app) *cobra.Command {
	var asJSON bool
	var group uint64
	var only string
	cmd := &cobra.Command{
		Use: "verify DIR", Short: "Compare every block with the manifest", Args: wantArgs(1, "one directory"),
		Long: `verify reads all content of the whole objects and compares it with the manifests: every block with its CRC32C, every part with
its SHA-256. Of a damaged object it reports the first block that is wrong: file, offset, and what was expected.

An object that was received in part, or whose upload has ended with the host, is no damage.

` + objectsJSON + objectsExitHelp(),
		RunE: func(cmd *cobra.Command, args []string) error {
			var id object.ID
			if only != "" {
				var err error
				if id, err = object.ParseID(only); err != nil {
					return usageError{fmt.Errorf("--object: %w", err)}
				}
			}
			found, err := verifyObjects(cmd.Context(), a, args[0], group, id)
			if err != nil {
				return cannot(err)
			}
			return answer(a, describeObjects(args[0], found, true), asJSON)
		},
	}
	cmd.Flags().Uint64Var(&group, "group", 0, "only this group (default all)")
	cmd.Flags().StringVar(&only, "object", "", "only the object with this id (default all)")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// verifyObjects finds the objects of a group, or of all if that is 0, with this id, or all if that is zero,
// and verifies them.
func verifyObjects(ctx context.Context, a app, dir string, group uint64, id object.ID) ([]files.Found, error) {
	fsys := &readCounter{FS: vfs.ReadOnly(vfs.OS())}
	all, err := files.Find(ctx, fsys, dir)
	if err != nil {
		return nil, err
	}
	found := slices.DeleteFunc(all, func(f files.Found) bool {
		return group != 0 && f.Group != group || !id.IsZero() && f.ID != id
	})
	if len(found) == 0 && (group != 0 || !id.IsZero()) {
		return nil, fmt.Errorf("%s has no such object; millrace objects list says which it has", dir)
	}
	fsys.count(scanProgress(a), found)
	for i := range found {
		if err := found[i].Verify(ctx); err != nil {
			return nil, err
		}
	}
	fsys.end()
	return found, nil
}

// readCounter is a filesystem that tells a progress how much was read. It is for one goroutine.
type readCounter struct {
	vfs.FS
	progress    func(done, total int64) // nil: none
	done, total int64
}

// count begins to count what is read of objects.
func (c *readCounter) count(progress func(done, total int64), found []files.Found) {
	c.progress = progress
	for i := range found {
		if found[i].State == files.Whole {
			c.total += found[i].Bytes
		}
	}
}

// end says that all is read, also if the rest of a damaged object was not.
func (c *readCounter) end() {
	if c.progress != nil {
		c.progress(c.total, c.total)
	}
}

// Open implements vfs.FS.
func (c *readCounter) Open(name string) (vfs.File, error) {
	f, err := c.FS.Open(name)
	if err != nil || c.progress == nil {
		return f, err
	}
	return countedFile{f, c}, nil
}

type countedFile struct {
	vfs.File
	of *readCounter
}

// ReadAt implements vfs.File.
func (f countedFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.of.done += int64(n)
	f.of.progress(min(f.of.done, f.of.total-1), f.of.total)
	return n, err
}

// objectList is the answer of both verbs. The names of its JSON form stay as they are.
type objectList struct {
	Dir      string        `json:"dir"`
	Verified bool          `json:"verified"`
	Objects  []objectFound `json:"objects"`
}

type objectFound struct {
	Group  uint64        `json:"group"`
	ID     string        `json:"id"`
	State  files.State   `json:"state"`
	Bytes  int64         `json:"bytes"`
	Hash   string        `json:"hash,omitempty"`
	Dir    string        `json:"dir"`
	Damage *objectDamage `json:"damage,omitempty"`
}

type objectDamage struct {
	File   string `json:"file"`
	Offset *int64 `json:"offset,omitempty"` // nil: the file as a whole
	What   string `json:"what"`
}

func describeObjects(dir string, found []files.Found, verified bool) *objectList {
	list := &objectList{Dir: dir, Verified: verified, Objects: make([]objectFound, 0, len(found))}
	for i := range found {
		f := &found[i]
		o := objectFound{Group: f.Group, ID: f.ID.String(), State: f.State, Bytes: f.Bytes, Dir: f.Dir}
		if f.Hash != [32]byte{} {
			o.Hash = hex.EncodeToString(f.Hash[:])
		}
		if f.Damage != nil {
			o.Damage = describeDamage(f.Damage)
		}
		list.Objects = append(list.Objects, o)
	}
	return list
}

// describeDamage says where an object is damaged. DamageError.Error advises what is for snapshots.
func describeDamage(d *snapshot.DamageError) *objectDamage {
	o := &objectDamage{File: d.File, What: d.What}
	if d.Block >= 0 {
		offset := d.Block * snapshot.BlockBytes
		o.Offset = &offset
	}
	if d.Err != nil {
		o.What += ": " + d.Err.Error()
	}
	return o
}

// Exit implements inspect.Answer.
func (l *objectList) Exit() int {
	if slices.ContainsFunc(l.Objects, func(o objectFound) bool { return o.State == files.Damaged }) {
		return exitDamaged
	}
	return exitOK
}

var _ inspect.Answer = (*objectList)(nil)

// WriteText implements inspect.Answer.
func (l *objectList) WriteText(w io.Writer) error {
	var b strings.Builder
	states, bytes := map[files.State]int{}, int64(0)
	for _, o := range l.Objects {
		states[o.State]++
		bytes += o.Bytes
		fmt.Fprintf(&b, "%-10s  group %-4d  %s  %13d bytes", o.State, o.Group, o.ID, o.Bytes)
		if o.Hash != "" {
			fmt.Fprintf(&b, "  hash %.16s", o.Hash)
		}
		b.WriteByte('\n')
		if d := o.Damage; d != nil {
			fmt.Fprintf(&b, "            %s", d.File)
			if d.Offset != nil {
				fmt.Fprintf(&b, ", offset %d", *d.Offset)
			}
			fmt.Fprintf(&b, ": %s\n            if millrace snapshot verify finds no damage, remove %s while the host is stopped: the member fetches the object again\n", d.What, o.Dir)
		}
	}
	fmt.Fprintf(&b, "%d objects of %d bytes: %d whole", len(l.Objects), bytes, states[files.Whole])
	for _, s := range []files.State{files.Receiving, files.Unfinished, files.Damaged} {
		if states[s] > 0 {
			fmt.Fprintf(&b, ", %d %s", states[s], s)
		}
	}
	if !l.Verified {
		b.WriteString("; the content was not read")
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}
