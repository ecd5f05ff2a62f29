package command

import (
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Result is what Apply answers. Members compare all of it but Response.
type Result struct {
	// Revision is that of the state after the command.
	Revision int64
	// Err says why the command was refused; 0: it was not. A command that was refused changed nothing.
	Err Code
	// TTLs answers renewals, in their order: the TTL of each lease in seconds, 0 for one that is not there.
	TTLs []int64
	// Expired is how many leases an expiry has ended.
	Expired int64
	// Response is etcd's response as protobuf, if a caller waits for it. Its header has the revision only.
	Response []byte `millrace:"awaited"`
}

// Code says why a command was refused. The numbers are in the results that members compare: they never
// change.
type Code uint8

// The codes.
const (
	Malformed Code = iota + 1
	Unsupported
	EmptyKey
	KeyNotFound
	LeaseNotFound
	LeaseExists
	LeaseTTLTooLarge
	Compacted
	FutureRevision
	NoSpace
	Corrupt
	TooDeep
	InvalidSort
	ValueProvided
	LeaseProvided
	MemberNotFound
)

// errorOf has etcd's errors; FutureRevision and others have their texts from there, too.
var errorOf = map[Code]error{
	Malformed:        status.Error(codes.InvalidArgument, "millrace: the command in the log cannot be decoded; a member of another program has proposed it"),
	Unsupported:      status.Error(codes.Unimplemented, "millrace: the command in the log has a version or a kind that this program does not know; update all members"),
	EmptyKey:         rpctypes.ErrGRPCEmptyKey,
	KeyNotFound:      rpctypes.ErrGRPCKeyNotFound,
	LeaseNotFound:    rpctypes.ErrGRPCLeaseNotFound,
	LeaseExists:      rpctypes.ErrGRPCLeaseExist,
	LeaseTTLTooLarge: rpctypes.ErrGRPCLeaseTTLTooLarge,
	Compacted:        rpctypes.ErrGRPCCompacted,
	FutureRevision:   rpctypes.ErrGRPCFutureRev,
	NoSpace:          rpctypes.ErrGRPCNoSpace,
	Corrupt:          rpctypes.ErrGRPCCorrupt,
	TooDeep:          rpctypes.ErrGRPCTooManyOps,
	InvalidSort:      rpctypes.ErrGRPCInvalidSortOption,
	ValueProvided:    rpctypes.ErrGRPCValueProvided,
	LeaseProvided:    rpctypes.ErrGRPCLeaseProvided,
	MemberNotFound:   rpctypes.ErrGRPCMemberNotFound,
}

// Error returns the error of a refusal with etcd's code and text; nil for 0.
func Error(c Code) error {
	if c == 0 {
		return nil
	}
	if err := errorOf[c]; err != nil {
		return err
	}
	return status.Error(codes.Unknown, fmt.Sprintf("millrace: refused with code %d, which this program does not know", c))
}

// refusal is a Code as an error, within Apply.
type refusal struct{ code Code }

func (r refusal) Error() string { return Error(r.code).Error() }

// Refuse returns a refusal as an error. CodeOf has the code of it again.
func Refuse(c Code) error { return refusal{c} }

// CodeOf returns the code of a refusal. ok is false for other errors, such as those of a disk.
func CodeOf(err error) (c Code, ok bool) {
	r, ok := err.(refusal)
	return r.code, ok
}
