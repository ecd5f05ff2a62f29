package audit

import (
	"fmt"
	"strconv"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"

	"github.com/millrace/millrace/server/command"
)

// decode returns a command in etcd's form, or in ours if etcd has none.
func decode(cmd []byte) (*pb.InternalRaftRequest, *Own, error) {
	kind, body, refused := command.Split(cmd)
	if refused != 0 {
		return nil, nil, fmt.Errorf("it is no command of the service (%w): is this the log of millrace serve, and of no newer version?", command.Error(refused))
	}
	r, own := &pb.InternalRaftRequest{}, &Own{}
	switch kind {
	case command.KindPut:
		r.Put, refused = command.DecodePut(body)
	case command.KindDeleteRange:
		r.DeleteRange, refused = command.DecodeDeleteRange(body)
	case command.KindTxn:
		r.Txn, refused = command.DecodeTxn(body)
	case command.KindCompact:
		r.Compaction, refused = command.DecodeCompact(body)
	case command.KindAlarm:
		r.Alarm, refused = command.DecodeAlarm(body)
	case command.KindLeaseGrant:
		r.LeaseGrant = &pb.LeaseGrantRequest{}
		r.LeaseGrant.ID, r.LeaseGrant.TTL, refused = command.DecodeLeaseGrant(body)
	case command.KindLeaseRevoke:
		r.LeaseRevoke = &pb.LeaseRevokeRequest{}
		r.LeaseRevoke.ID, refused = command.DecodeLeaseRevoke(body)
	case command.KindAttributes:
		m, _, code := command.DecodeAttributes(body)
		if refused = code; code == 0 {
			r.ClusterMemberAttrSet = &membershippb.ClusterMemberAttrSetRequest{
				Member_ID: m.ID, MemberAttributes: &membershippb.Attributes{Name: m.Name, ClientUrls: m.ClientURLs},
			}
		}
	default:
		r = nil
		refused = own.decode(kind, body)
	}
	if refused != 0 { // every member refuses it alike
		return nil, nil, nil
	}
	if r != nil {
		return r, nil, nil
	}
	return nil, own, nil
}

func (o *Own) decode(kind command.Kind, body []byte) (refused command.Code) {
	switch kind {
	case command.KindLeaseRenew:
		ids, code := command.DecodeLeaseRenew(body)
		o.Renewals, refused = texts(ids), code
	case command.KindLeaseExpire:
		of, code := command.DecodeLeaseExpire(body)
		for _, r := range of {
			o.Expiries = append(o.Expiries, strconv.FormatInt(r.ID, 10))
		}
		refused = code
	case command.KindSettings:
		quota, code := command.DecodeSettings(body)
		o.QuotaBytes, refused = strconv.FormatInt(quota, 10), code
	}
	return refused
}
