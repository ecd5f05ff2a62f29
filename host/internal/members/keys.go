package members

import (
	"sync/atomic"

	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/transport"
)

// Keys are those with which hosts come, and what this host has decided about them. The zero value has none.
// Any goroutine may call its methods.
type Keys struct {
	Announcing atomic.Bool // this host may have to name its key in a group

	mu       lock.Mutex
	came     map[uint64]identity.NewDirectory // with which a host was admitted last
	refused  map[uint64]membership.Key        // for which a host was refused last
	accepted map[uint64]membership.Key        // by an operator
	unbound  map[memberOf]string              // why a member is bound to no key, as it was said last
}

// memberOf is a member of a group.
type memberOf struct{ group, id uint64 }

func set[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}

// Admit keeps the key with which a host was admitted.
func (k *Keys) Admit(peer transport.Introduction) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := (identity.NewDirectory{Incarnation: peer.Incarnation, Key: peer.Key}); k.came[peer.ID] != now {
		set(&k.came, peer.ID, now)
	}
	delete(k.refused, peer.ID)
}

// Presented returns the key with which a directory of a host was admitted last; zero if it was not in this
// life.
func (k *Keys) Presented(id uint64, i transport.Incarnation) (key membership.Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d := k.came[id]; d.Incarnation == i {
		return d.Key
	}
	return key
}

// IsAccepted reports whether an operator has accepted the key of a host.
func (k *Keys) IsAccepted(id uint64, key membership.Key) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !key.IsZero() && k.accepted[id] == key
}

// Refuse keeps the key for which a host was refused.
func (k *Keys) Refuse(id uint64, key membership.Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.refused) < identity.MaxHosts {
		set(&k.refused, id, key)
	}
}

// Accept accepts the key for which a host was refused last. There may be none.
func (k *Keys) Accept(id uint64) (key membership.Key, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if key, ok = k.refused[id]; ok {
		set(&k.accepted, id, key)
		delete(k.refused, id)
	}
	return key, ok
}

// Unbound keeps why a member is bound to no key. It reports whether that is news.
func (k *Keys) Unbound(group, id uint64, cause string) (news bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := memberOf{group, id}
	news = k.unbound[m] != cause
	set(&k.unbound, m, cause)
	return news
}

// OtherKey returns the key to which the group has bound the directory of a peer, if the peer has another key.
func (v View) OtherKey(id uint64, i transport.Incarnation, key membership.Key) (bound membership.Key, is bool) {
	if v.Roster == nil {
		return bound, false
	}
	m, ok := v.Roster.Member(id)
	if !ok || m.Incarnation != i || m.Keys.Accepts(key) {
		return bound, false
	}
	if v.Hint != nil && v.Hint.Version > v.Roster.Version {
		if later, ok := v.Hint.Member(id); ok && later.Incarnation == i && later.Keys.Accepts(key) {
			return bound, false
		}
	}
	return m.Keys[0], true
}
