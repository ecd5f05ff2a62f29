package plans

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/transport"
)

// A join token lets a host with an empty directory become a member of a group, once, without an operator who
// plans the change on a member:
//
//	NewJoinToken  on any member: draws a secret. An entry of the log keeps the hash of the public key that
//	              the secret makes, when the token expires, and for which host it is
//	Config        the new host has the token and the address of one member
//	hello         the new host signs the channel of each connection with the private key (Host.Prove). The
//	              other end checks the signature (ReadProof). The secret is never sent. What is
//	              sent is worth nothing on another connection.
//	plan          the leader finds the hash in its roster, and begins a plan that adds the host. The entry
//	              that adds it uses the token up
//
// What the log keeps lets no host in, so logs, snapshots and backups need not be secret for its sake. The
// private key is made from 128 random bits, so it cannot be guessed from the hash.
//
// Rejected: a secret that the new host sends: a host of another cluster at the configured address would learn
// it. A MAC with what the log keeps as its key: then every backup is a token.
type Token struct {
	Cluster, Group uint64
	CA             [32]byte // hash of the key of the CA that has signed the maker's certificate; zero: it had none
	Secret         [secretBytes]byte
	Expires        time.Duration // in log time
}

const (
	secretBytes = 16
	// tokenPrefix begins the text of a token: what it is, and the version of the form.
	tokenPrefix = "millrace-join-1."
	tokenBytes  = 8 + 8 + 32 + secretBytes + 8 + 4
)

// String returns the text of the token: the prefix, and in base64 (RFC 4648, for URLs)
//
//	cluster u64 │ group u64 │ CA 32 B │ secret 16 B │ expires u64 │ crc32c u32
//
// in little-endian.
func (t Token) String() string {
	b := binary.LittleEndian.AppendUint64(nil, t.Cluster)
	b = binary.LittleEndian.AppendUint64(b, t.Group)
	b = append(append(b, t.CA[:]...), t.Secret[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(t.Expires))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(b)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errBadToken = errors.New("it is no join token")

// ParseToken reads the text of a token. Errors do not repeat it.
func ParseToken(text string) (t Token, err error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), tokenPrefix)
	if !ok {
		return t, fmt.Errorf("%w: it does not begin with %q; copy the whole text that NewJoinToken has returned", errBadToken, tokenPrefix)
	}
	b, err := base64.RawURLEncoding.DecodeString(rest)
	if err != nil || len(b) != tokenBytes {
		return t, fmt.Errorf("%w: it has %d characters after %q, want %d; copy the whole text that NewJoinToken has returned", errBadToken, len(rest), tokenPrefix, base64.RawURLEncoding.EncodedLen(tokenBytes))
	}
	if binary.LittleEndian.Uint32(b[len(b)-4:]) != crc32.Checksum(b[:len(b)-4], castagnoli) {
		return t, fmt.Errorf("%w: its checksum is wrong, so a character was changed; copy it again", errBadToken)
	}
	t.Cluster, t.Group = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	copy(t.CA[:], b[16:])
	copy(t.Secret[:], b[48:])
	t.Expires = time.Duration(binary.LittleEndian.Uint64(b[64:]))
	return t, nil
}

// Key returns the private key that the secret makes.
func (t Token) Key() ed25519.PrivateKey {
	b := append([]byte("millrace join token\x00"), t.Secret[:]...)
	b = binary.LittleEndian.AppendUint64(b, t.Cluster)
	b = binary.LittleEndian.AppendUint64(b, t.Group)
	seed := sha256.Sum256(b)
	return ed25519.NewKeyFromSeed(seed[:])
}

func hashOfToken(public []byte) membership.TokenHash { return sha256.Sum256(public) }

// Hash returns what the log keeps of the token.
func (t Token) Hash() membership.TokenHash {
	return hashOfToken(t.Key().Public().(ed25519.PublicKey))
}

// statementOf is what the private key of a token signs: this host, with this directory, on this connection.
func statementOf(cluster, group, id uint64, i transport.Incarnation, channel [32]byte) []byte {
	b := []byte("millrace join by token\x00")
	for _, v := range []uint64{cluster, group, id} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return append(append(b, i[:]...), channel[:]...)
}

// Grant returns the entry that makes a token as a host has asked, at a log time. It is nil if the token is
// made already.
func (q Request) Grant(r *membership.Roster, now time.Duration) (data []byte, err error) {
	grant, err := membership.DecodeGrant(q.Data[1:])
	if err != nil {
		return nil, err
	}
	if _, open := r.Token(grant.Token.Hash); open {
		return nil, nil // the asker applies it
	}
	grant.Time = now
	if _, err := r.Grant(r.Version+1, grant); err != nil {
		return nil, err
	}
	return EncodeGrant(grant), nil
}

// EncodeGrant returns the entry that makes a token.
func EncodeGrant(g membership.Grant) []byte { return append([]byte{entry.GrantKind}, g.Encode()...) }

// Tokens are the join tokens that a host was given.
type Tokens []Token

// MaxTokens bounds what a host proves on each connection.
const MaxTokens = 8

// ParseTokens reads the texts of the tokens that a host was given. It returns the cluster
// of all, and takes the given one if it is not 0.
func ParseTokens(texts []string, cluster uint64) (all Tokens, of uint64, err error) {
	if len(texts) > MaxTokens {
		return nil, 0, fmt.Errorf("millrace: JoinTokens has %d tokens, want at most %d", len(texts), MaxTokens)
	}
	for i, text := range texts {
		t, err := ParseToken(text)
		if err != nil {
			return nil, 0, fmt.Errorf("millrace: join token %d: %w", i+1, err)
		}
		if cluster != 0 && cluster != t.Cluster {
			return nil, 0, fmt.Errorf("millrace: join token %d is for cluster %d, and Config.Cluster, or another token, is for cluster %d; leave Config.Cluster out, and give a host tokens of one cluster only", i+1, t.Cluster, cluster)
		}
		cluster, all = t.Cluster, append(all, t)
	}
	return all, cluster, nil
}

// Of returns the token for a group.
func (all Tokens) Of(group uint64) (t Token, ok bool) {
	if at := slices.IndexFunc(all, func(t Token) bool { return t.Group == group }); at >= 0 {
		return all[at], true
	}
	return t, false
}

// Prove returns the proof of a host for a connection: it has the tokens of groups that have not added it yet.
//
//	n × (group u64, public key 32 B, signature 64 B)
func (all Tokens) Prove(id uint64, i transport.Incarnation, channel [32]byte, isAdded func(group uint64) bool) (proof []byte) {
	for _, t := range all {
		if isAdded(t.Group) {
			continue
		}
		key := t.Key()
		proof = binary.LittleEndian.AppendUint64(proof, t.Group)
		proof = append(proof, key.Public().(ed25519.PublicKey)...)
		proof = append(proof, ed25519.Sign(key, statementOf(t.Cluster, t.Group, id, i, channel))...)
	}
	return proof
}

const proofBytes = 8 + ed25519.PublicKeySize + ed25519.SignatureSize

// ReadProof checks what a peer proves. A signature that is wrong was made for another connection, or for
// another host: the connection is not what the peer thinks it is.
func ReadProof(cluster uint64, peer transport.Introduction) (all []Applicant, err error) {
	if len(peer.Proof)%proofBytes != 0 || len(peer.Proof) > MaxTokens*proofBytes {
		return nil, fmt.Errorf("host %d comes with a proof of %d bytes, want at most %d times %d", peer.ID, len(peer.Proof), MaxTokens, proofBytes)
	}
	for rest := bytes.NewBuffer(peer.Proof); rest.Len() > 0; {
		group := binary.LittleEndian.Uint64(rest.Next(8))
		public, signature := rest.Next(ed25519.PublicKeySize), rest.Next(ed25519.SignatureSize)
		if !ed25519.Verify(public, statementOf(cluster, group, peer.ID, peer.Incarnation, peer.Channel), signature) {
			return nil, fmt.Errorf("the join token with which host %d comes for group %d is proved for another host, directory or connection: another program may be between the hosts", peer.ID, group)
		}
		all = append(all, Applicant{Group: group, Hash: hashOfToken(public), Incarnation: peer.Incarnation, Key: membership.Key(peer.Key), Addr: peer.Addr})
	}
	return all, nil
}
