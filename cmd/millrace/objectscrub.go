package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/host/admin"
)

// defaultScrubRate is in MiB/s: a tenth of what a fast disk reads, so that the log on it is not held up.
const defaultScrubRate = 100

func newObjectsScrub(a app) *cobra.Command {
	var asJSON bool
	var s scrub
	cmd := &cobra.Command{
		Use: "scrub DIR", Short: "Verify the objects of a running host, and have what is damaged fetched again", Args: wantArgs(1, "one directory"),
		Long: `scrub asks the running host of DIR, over its admin socket (Config.AdminSocket), to read all of its large objects and to compare every
block with the checksums. An object that is damaged is fetched again from another member, at once and by itself: nothing has to
be stopped or removed. Run it regularly, as damage is found otherwise only when the object is read.

--rate bounds what is read, from one object to the next. Interrupt it at any time; the next run begins with the first object.
What the kernel has in memory is not read from the disk.

JSON: dir, objects, bytes, damaged [{group, id, bytes, what}].

` + objectsExitHelp(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if s.rate < 0 {
				return usageError{fmt.Errorf("--rate is %d, want 0, which is unbounded, or more", s.rate)}
			}
			s.progress = scanProgress(a)
			return withHost(cmd.Context(), args[0], func(c *admin.Client) error {
				found, err := s.run(cmd.Context(), c)
				if err != nil {
					return cannot(err)
				}
				found.Dir = args[0]
				return answer(a, found, asJSON)
			})
		},
	}
	cmd.Flags().Uint64Var(&s.group, "group", 0, "only this group (default all)")
	cmd.Flags().Int64Var(&s.rate, "rate", defaultScrubRate, "read at most this many MiB/s; 0 is unbounded")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// scrub is what scrub was asked for.
type scrub struct {
	group    uint64
	rate     int64                   // MiB/s; 0: unbounded
	progress func(done, total int64) // nil: none
}

// run verifies one object after the other.
func (s scrub) run(ctx context.Context, c *admin.Client) (*scrubbed, error) {
	status, err := c.Status(ctx, s.group)
	switch {
	case err != nil:
		return nil, err
	case status.More > 0:
		return nil, fmt.Errorf("the host has %d groups; say which one with --group", len(status.Groups)+status.More)
	}
	found := &scrubbed{Damaged: []scrubDamage{}}
	for _, g := range status.Groups {
		if err := s.verify(ctx, c, g.Group, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// verify verifies the objects of a group.
func (s scrub) verify(ctx context.Context, c *admin.Client, group uint64, found *scrubbed) error {
	for after := ""; ; {
		began := time.Now()
		o, err := c.VerifyObject(ctx, group, after)
		if err != nil || o.ID == "" {
			return err
		}
		after = o.ID
		found.Objects++
		found.Bytes += o.Bytes
		if o.Damage != "" {
			found.Damaged = append(found.Damaged, scrubDamage{Group: group, ID: o.ID, Bytes: o.Bytes, What: o.Damage})
		}
		if s.progress != nil {
			s.progress(found.Bytes, found.Bytes+o.Left)
		}
		if err := s.await(ctx, o.Bytes, time.Since(began)); err != nil {
			return err
		}
	}
}

// await waits until an object that was read in this time has taken as long as the rate demands.
func (s scrub) await(ctx context.Context, bytes int64, took time.Duration) error {
	if s.rate == 0 {
		return nil
	}
	t := time.NewTimer(time.Duration(float64(bytes)/float64(s.rate<<20)*float64(time.Second)) - took)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// scrubbed is the answer of scrub. The names of its JSON form stay as they are.
type scrubbed struct {
	Dir     string        `json:"dir"`
	Objects int           `json:"objects"`
	Bytes   int64         `json:"bytes"`
	Damaged []scrubDamage `json:"damaged"`
}

type scrubDamage struct {
	Group uint64 `json:"group"`
	ID    string `json:"id"`
	Bytes int64  `json:"bytes"`
	What  string `json:"what"`
}

// Exit implements inspect.Answer.
func (s *scrubbed) Exit() int {
	if len(s.Damaged) > 0 {
		return exitDamaged
	}
	return exitOK
}

// WriteText implements inspect.Answer.
func (s *scrubbed) WriteText(w io.Writer) error {
	var b strings.Builder
	for _, d := range s.Damaged {
		fmt.Fprintf(&b, "damaged     group %-4d  %s  %13d bytes: %s\n            the host fetches it again; look at the disk\n", d.Group, d.ID, d.Bytes, d.What)
	}
	fmt.Fprintf(&b, "%d objects of %d bytes were read: %d damaged\n", s.Objects, s.Bytes, len(s.Damaged))
	_, err := io.WriteString(w, b.String())
	return err
}
