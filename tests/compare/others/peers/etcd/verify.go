package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/millrace/millrace/cmd/lab/peer"
)

// Verify implements peer.Target. It reads what each server itself holds, every key with its revision, and
// applies that to a Machine in the order of the revisions. A Put that was applied twice has left a key with
// two versions.
func (c *cluster) Verify(ctx context.Context, ledger *peer.Ledger) error {
	var clients []*clientv3.Client
	for _, server := range c.servers {
		client, err := clientOf(server)
		if err != nil {
			return err
		}
		defer client.Close()
		clients = append(clients, client)
	}
	revision, err := awaitSame(ctx, clients)
	if err != nil {
		return err
	}
	var machines []*peer.Machine
	for i, client := range clients {
		m, err := replay(ctx, client, revision)
		if err != nil {
			return fmt.Errorf("server %d: %w", i+1, err)
		}
		machines = append(machines, m)
	}
	return peer.VerifyMachines(ctx, machines, ledger)
}

// awaitSame returns the revision that all servers have, once they have the same.
func awaitSame(ctx context.Context, clients []*clientv3.Client) (int64, error) {
	poll := time.NewTicker(peer.VerifyPoll)
	defer poll.Stop()
	for {
		var revisions []int64
		for _, client := range clients {
			response, err := client.Get(ctx, "none", clientv3.WithSerializable())
			if err != nil {
				return 0, err
			}
			revisions = append(revisions, response.Header.Revision)
		}
		if slices.Min(revisions) == slices.Max(revisions) {
			return revisions[0], nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("%w: the servers are at revisions %v, although all clients have stopped", peer.ErrMismatch, revisions)
		}
	}
}

const pageKeys = 4096

// replay reads everything that one server holds, without asking another.
func replay(ctx context.Context, client *clientv3.Client, revision int64) (*peer.Machine, error) {
	var all []*mvccpb.KeyValue
	for from := "\x00"; ; {
		page, err := client.Get(ctx, from, clientv3.WithFromKey(), clientv3.WithSerializable(), clientv3.WithRev(revision), clientv3.WithLimit(pageKeys))
		if err != nil {
			return nil, err
		}
		all = append(all, page.Kvs...)
		if !page.More {
			break
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
	slices.SortFunc(all, func(a, b *mvccpb.KeyValue) int { return int(a.ModRevision - b.ModRevision) })
	m := &peer.Machine{}
	for _, kv := range all {
		id, _, ok := peer.ParseValue(kv.Value)
		if !ok || string(kv.Key) != keyOf(id) {
			return nil, fmt.Errorf("%w: key %s has a value that was not put there", peer.ErrMismatch, kv.Key)
		}
		if kv.Version != 1 {
			return nil, fmt.Errorf("%w: key %s was put %d times", peer.ErrMismatch, kv.Key, kv.Version)
		}
		m.Apply(uint64(kv.ModRevision), kv.Value)
	}
	return m, nil
}
