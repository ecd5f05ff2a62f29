package host

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs"
)

// A join token lets a host with an empty directory become a member of a group, once, without an operator who
// plans the change on a member:
//
//	NewJoinToken  on any member: draws a secret. An entry of the log keeps the hash of the public key that
//	              the secret makes, when the token expires, and for which host it is
//	Config        the new host has the token and the address of one member
//	hello         the new host signs the channel of each connection with the private key (Host.Prove). The
//	              other end checks the signature (applicants.go). The secret is never sent, and what is sent
//	              is worth nothing on another connection
//	plan          the leader finds the hash in its roster, and begins a plan that adds the host. The entry
//	              that adds it uses the token up
//
// What the log keeps lets no host in, so logs, snapshots and backups need not be secret for its sake. The
// private key is made from 128 random bits, so it cannot be guessed from the hash.
//
// Rejected: a secret that the new host sends: a host of another cluster at the configured address would learn
// it. A MAC with what the log keeps as its key: then every backup is a token.
type joinToken struct {
	cluster, group uint64
	ca             [32]byte // hash of the key of the CA that has signed the maker's certificate; zero: it had none
	secret         [joinSecretBytes]byte
	expires        time.Duration // in log time
}

const (
	joinSecretBytes = 16
	// joinTokenPrefix begins the text of a token: what it is, and the version of the form.
	joinTokenPrefix = "millrace-join-1."
	joinTokenBytes  = 8 + 8 + 32 + joinSecretBytes + 8 + 4
)

// String returns the text of the token: the prefix, and in base64 (RFC 4648, for URLs)
//
//	cluster u64 │ group u64 │ CA 32 B │ secret 16 B │ expires u64 │ crc32c u32
//
// in little-endian.
func (j joinToken) String() string {
	b := binary.LittleEndian.AppendUint64(nil, j.cluster)
	b = binary.LittleEndian.AppendUint64(b, j.group)
	b = append(append(b, j.ca[:]...), j.secret[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(j.expires))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return joinTokenPrefix + base64.RawURLEncoding.EncodeToString(b)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errBadToken = errors.New("it is no join token")

// parseJoinToken reads the text of a token. Errors do not repeat it.
func parseJoinToken(text string) (j joinToken, err error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), joinTokenPrefix)
	if !ok {
		return j, fmt.Errorf("%w: it does not begin with %q; copy the whole text that NewJoinToken has returned", errBadToken, joinTokenPrefix)
	}
	b, err := base64.RawURLEncoding.DecodeString(rest)
	if err != nil || len(b) != joinTokenBytes {
		return j, fmt.Errorf("%w: it has %d characters after %q, want %d; copy the whole text that NewJoinToken has returned", errBadToken, len(rest), joinTokenPrefix, base64.RawURLEncoding.EncodedLen(joinTokenBytes))
	}
	if binary.LittleEndian.Uint32(b[len(b)-4:]) != crc32.Checksum(b[:len(b)-4], castagnoli) {
		return j, fmt.Errorf("%w: its checksum is wrong, so a character was changed; copy it again", errBadToken)
	}
	j.cluster, j.group = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	copy(j.ca[:], b[16:])
	copy(j.secret[:], b[48:])
	j.expires = time.Duration(binary.LittleEndian.Uint64(b[64:]))
	return j, nil
}

// key returns the private key that the secret makes.
func (j joinToken) key() ed25519.PrivateKey {
	b := append([]byte("millrace join token\x00"), j.secret[:]...)
	b = binary.LittleEndian.AppendUint64(b, j.cluster)
	b = binary.LittleEndian.AppendUint64(b, j.group)
	seed := sha256.Sum256(b)
	return ed25519.NewKeyFromSeed(seed[:])
}

func hashOfToken(public []byte) membership.TokenHash { return sha256.Sum256(public) }

func (j joinToken) hash() membership.TokenHash {
	return hashOfToken(j.key().Public().(ed25519.PublicKey))
}

// joinStatement is what the private key of a token signs: this host, with this directory, on this connection.
func joinStatement(cluster, group, id uint64, i transport.Incarnation, channel [32]byte) []byte {
	b := []byte("millrace join by token\x00")
	for _, v := range []uint64{cluster, group, id} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return append(append(b, i[:]...), channel[:]...)
}

// JoinTokenOptions say what a join token allows. The zero value lets any new host become a voter within an
// hour.
type JoinTokenOptions struct {
	// Life is how long the token is valid, in log time, which stands still while the group has no leader;
	// default an hour, at most 30 days.
	Life time.Duration
	// Member is the only id that may use it. If that is the id of a member, the token replaces the directory
	// of that member: it was wiped or lost. Default 0: any id that no member has had.
	Member uint64
	// Learner makes the new member a learner for good.
	Learner bool
}

// JoinToken is a join token on its way (Group.StartJoinToken).
type JoinToken struct {
	token     joinToken
	expires   atomic.Int64 // log time
	execution *Execution
}

// NewJoinToken makes a join token for this group, and returns its text when this member has applied the entry
// that makes it valid. The text is a secret: who has it may become a member. It is not kept anywhere, and can
// be used once: Config.JoinTokens of the new host. An error that wraps ErrMembersUnchanged says why there is
// none; a group has at most 64 that are open. Any member may be called. It is safe for concurrent use.
func (g *Group) NewJoinToken(ctx context.Context, o JoinTokenOptions) (string, error) {
	j, err := g.StartJoinToken(o)
	if err != nil {
		return "", err
	}
	if err := j.execution.wait(ctx); err != nil {
		return "", err
	}
	return j.text(), nil
}

// StartJoinToken is NewJoinToken without waiting: ask Poll whether the token is valid.
func (g *Group) StartJoinToken(o JoinTokenOptions) (*JoinToken, error) {
	if o.Life == 0 {
		o.Life = time.Hour
	}
	if o.Life < 0 || o.Life > membership.MaxTokenLife {
		return nil, fmt.Errorf("millrace: JoinTokenOptions.Life is %v, want more than nothing and at most %v", o.Life, membership.MaxTokenLife)
	}
	if g.roster() == nil {
		return nil, g.notFounded()
	}
	ca, err := g.host.issuer()
	if err != nil {
		return nil, fmt.Errorf("millrace: group %d: a join token names the CA of this host, whose certificate cannot be read now: %w", g.id, err)
	}
	j := &JoinToken{token: joinToken{cluster: g.host.Cluster(), group: g.id, ca: ca}}
	if _, err := io.ReadFull(g.host.secrets(), j.token.secret[:]); err != nil {
		return nil, fmt.Errorf("millrace: group %d: draw the secret of a join token: %w", g.id, err)
	}
	grant := membership.Grant{Life: o.Life, Token: membership.Token{Hash: j.token.hash(), Member: o.Member, Learner: o.Learner}}
	j.execution = g.execution(append([]byte{entry.GrantKind}, grant.Encode()...), "join token %v", grant.Token.Hash)
	j.execution.outcome = func(r *membership.Roster) (done bool, err error) {
		t, open := r.Token(grant.Token.Hash)
		if open {
			j.expires.Store(int64(t.Expires))
		}
		return open, nil
	}
	j.execution.start()
	return j, nil
}

// Poll returns the text of the token when this member has applied the entry that makes it valid. It never
// waits.
func (j *JoinToken) Poll() (text string, done bool, err error) {
	if done, err = j.execution.Poll(); !done || err != nil {
		return "", done, err
	}
	return j.text(), true, nil
}

// Hash names the token in logs, and in Members.Tokens. It is no secret.
func (j *JoinToken) Hash() membership.TokenHash { return j.token.hash() }

func (j *JoinToken) text() string {
	t := j.token
	t.expires = time.Duration(j.expires.Load())
	return t.String()
}

// takeGrant makes a token as another member, or this one, has asked.
func (g *Group) takeGrant(r *membership.Roster, q planRequest) error {
	grant, err := membership.DecodeGrant(q.data[1:])
	if err != nil {
		return err
	}
	if _, open := r.Token(grant.Token.Hash); open {
		return nil // the asker applies it
	}
	grant.Time = g.logTime()
	if _, err := r.Grant(r.Version+1, grant); err != nil {
		return err
	}
	g.proposeHost(append([]byte{entry.GrantKind}, grant.Encode()...))
	return nil
}

// tokens are the join tokens that this host was given.
type tokens struct{ all []joinToken }

// parseJoinTokens reads the tokens of the configuration, and completes it with what they say.
func (c *Config) parseJoinTokens() (t tokens, err error) {
	if len(c.JoinTokens) > maxJoinTokens {
		return t, fmt.Errorf("millrace: JoinTokens has %d tokens, want at most %d", len(c.JoinTokens), maxJoinTokens)
	}
	for i, text := range c.JoinTokens {
		j, err := parseJoinToken(text)
		if err != nil {
			return t, fmt.Errorf("millrace: join token %d: %w", i+1, err)
		}
		if c.Cluster != 0 && c.Cluster != j.cluster {
			return t, fmt.Errorf("millrace: join token %d is for cluster %d, and Config.Cluster, or another token, is for cluster %d; leave Config.Cluster out, and give a host tokens of one cluster only", i+1, j.cluster, c.Cluster)
		}
		c.Cluster, c.Joins = j.cluster, true
		t.all = append(t.all, j)
	}
	return t, nil
}

// rejectTokens says why the tokens cannot be used as this host is configured, or returns nil.
func (c Config) rejectTokens(t tokens) error {
	for i, j := range t.all {
		switch pinned := j.ca != [32]byte{}; {
		case c.TLS == nil && pinned:
			return fmt.Errorf("millrace: join token %d is of a cluster that uses TLS, and Config.TLS is not set; give this host a certificate (millrace cert)", i+1)
		case c.TLS != nil && !pinned:
			return fmt.Errorf("millrace: join token %d is of a cluster without TLS, and Config.TLS is set; leave it out, or make the token on a member with TLS", i+1)
		case c.TLS != nil:
			found, err := c.TLS.load()
			if err != nil {
				return fmt.Errorf("millrace: Config.TLS of host %d: %w", c.ID, err)
			}
			if !found.Trusts(j.ca) {
				return fmt.Errorf("millrace: join token %d is of a cluster whose CA has the key %x, and Config.TLS trusts %s; the CA file is that of another cluster, or the token was made before the CA was replaced; use the CA of the cluster, or make another token", i+1, j.ca[:8], found.RootsText())
			}
		}
		if addr, is := c.exposed(); is && c.TLS == nil {
			return fmt.Errorf("millrace: join token %d cannot be used without TLS, because %s is not on this machine: who listens there could join in place of this host; set Config.TLS", i+1, addr)
		}
	}
	return nil
}

// dropSpent leaves out tokens that cannot be used as this host is configured, because of rejected, if they
// have done their work: the directory has started in the cluster of the tokens. A token may stay set for
// years, while a cluster gets TLS, or replaces its CA. Otherwise dropSpent returns rejected. given is the
// configuration without what the tokens say.
func (c Config) dropSpent(given Config, fsys vfs.FS, rejected error) (Config, error) {
	have, found, err := identity.Read(fsys, c.Dir)
	if err != nil || !found || have.Cluster != c.Cluster {
		return c, rejected
	}
	if started, err := identity.HasStarted(fsys, identity.LogDir(c.Dir)); err != nil || !started {
		return c, errors.Join(rejected, err)
	}
	c.Joins = given.Joins
	return c, nil
}

// of returns the token for a group.
func (t *tokens) of(group uint64) (j joinToken, ok bool) {
	for _, j := range t.all {
		if j.group == group {
			return j, true
		}
	}
	return j, false
}

// maxJoinTokens bounds what a host proves on each connection.
const maxJoinTokens = 8

// Prove implements transport.Prover: this host has the tokens of groups that have not added it yet.
//
//	n × (group u64, public key 32 B, signature 64 B)
func (h *inbound) Prove(channel [32]byte) (proof []byte) {
	self := h.trust.admission.Self()
	for _, j := range h.trust.tokens.all {
		if g := h.groups.get(j.group); g != nil && g.isBoundHere() {
			continue
		}
		key := j.key()
		proof = binary.LittleEndian.AppendUint64(proof, j.group)
		proof = append(proof, key.Public().(ed25519.PublicKey)...)
		proof = append(proof, ed25519.Sign(key, joinStatement(j.cluster, j.group, self.ID, self.Incarnation, channel))...)
	}
	return proof
}

// isBoundHere reports whether this member's roster has its directory.
func (g *Group) isBoundHere() bool {
	r := g.roster()
	if r == nil {
		return false
	}
	m, ok := r.Member(g.self)
	return ok && m.Incarnation == g.host.incarnation()
}

const proofBytes = 8 + ed25519.PublicKeySize + ed25519.SignatureSize

// readProof checks what a peer proves. A signature that is wrong was made for another connection, or for
// another host: the connection is not what the peer thinks it is.
func readProof(cluster uint64, peer transport.Introduction) (all []applicant, err error) {
	if len(peer.Proof)%proofBytes != 0 || len(peer.Proof) > maxJoinTokens*proofBytes {
		return nil, fmt.Errorf("host %d comes with a proof of %d bytes, want at most %d times %d", peer.ID, len(peer.Proof), maxJoinTokens, proofBytes)
	}
	for rest := bytes.NewBuffer(peer.Proof); rest.Len() > 0; {
		group := binary.LittleEndian.Uint64(rest.Next(8))
		public, signature := rest.Next(ed25519.PublicKeySize), rest.Next(ed25519.SignatureSize)
		if !ed25519.Verify(public, joinStatement(cluster, group, peer.ID, peer.Incarnation, peer.Channel), signature) {
			return nil, fmt.Errorf("the join token with which host %d comes for group %d is proved for another host, directory or connection: another program may be between the hosts", peer.ID, group)
		}
		all = append(all, applicant{group: group, hash: hashOfToken(public), incarnation: peer.Incarnation, key: membership.Key(peer.Key), addr: peer.Addr})
	}
	return all, nil
}
