// The ledger of a client's key: the file `ledger.jsonl` beside its secret key.
//
// A server can send anything back. With the ledger a client accepts one answer to each of its own
// queries, and no other answer. A dishonest server learns one bit from each answer: whether the
// client showed it or refused it, and of a text whether it ended there. So a key has a budget of
// answers that were refused or ended a text, after which the key is not used any more
// (docs/security.md).
//
// The file has one JSON object per line and only grows:
//     {"event": "query", "query": ID, "program": ID, "count": N, "doubt": WHY}   by encrypt
//     {"event": "answer", ..., "answer": SHA256}    by decrypt, before anything is decrypted
//     {"event": "refused", ..., "answer": SHA256}   by decrypt, before it says that it refuses
//     {"event": "ended", ..., "answer": SHA256}     before a text ends where the server sees it
//     {"event": "share", ..., "answer": SHA256, "spent": S}   before its numbers are passed on
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "atlasc/base/files.hpp"

namespace atlasc {

class Ledger {
public:
    /// Number of answers, refused or the visible end of a text, after which a key is not used any
    /// more.
    static constexpr std::size_t most_refusals = 16;

    /// Greatest length of the reason for a doubt, in characters.
    static constexpr std::size_t most_doubt = 400;

    /// A query, or the answer to it.
    struct Entry {
        std::string query;
        std::string program;
        std::size_t count = 0;
        std::string answer{};  ///< digest of the answer; empty for a query
    };

    /// The ledger in the folder of a secret key; made if there is none. It stays locked as long as
    /// this object lives. Throws Error: the file is damaged, or other users may read it.
    explicit Ledger(const std::string& folder);

    /// Note a query; it is on the disk when this returns. `doubt`: why the bound on the errors may
    /// not hold for its answer; empty if the client knows no reason, nothing if it did not check.
    /// Throws Error: the key is used up.
    void add(const Entry& query, const std::optional<std::string>& doubt);

    /// Throws Error for an answer to no known query, of another program or count, or with another
    /// digest than an earlier answer; and for a new answer when the key is used up.
    void check(const Entry& answer) const;

    /// Check as `check`, and note the answer before it is decrypted. A server can then learn from
    /// the answer only once.
    void answer(const Entry& answer);

    /// Note once, before anything about it is shown, that a decrypted answer is refused.
    void refuse(const Entry& answer);

    std::size_t refusals() const { return refusals_; }

    /// Note once, before the server can see it, that a text ends with a decrypted answer.
    void end(const Entry& answer);

    /// Number of texts whose end the server could see.
    std::size_t ended() const { return ended_; }

    /// Throws Error, before anything is decrypted, for an answer that `share` would refuse.
    void require_shareable(const Entry& answer, int bits, std::size_t shares) const;

    /// Note, before they are shown, that the numbers of an answer leave the client; returns the
    /// number of shared answers, this one included. An answer that is shared at kappa `bits` as one
    /// of tau `shares` spends 2^-kappa / tau, in proportion to the divergence that its noise
    /// allows; all answers of a key together may spend 2^-kappa. Throws Error: as `check`; the
    /// bound on the errors may not hold for the query, the answer was refused, or the budget is
    /// spent.
    std::size_t share(const Entry& answer, int bits, std::size_t shares);

private:
    struct Asked {
        Entry entry;  ///< with the digest of the first answer
        std::optional<std::string> doubt{};
        bool refused = false;
        bool ended = false;
    };

    void read();
    bool read_line(const std::string& line);
    const Asked& expected(const Entry& answer) const;
    void require_usable() const;
    void append(const std::string& event, const Entry& entry, const std::string& more = "");

    std::string path_;
    Descriptor file_;
    std::map<std::string, Asked> asked_;
    std::size_t refusals_ = 0;
    std::size_t ended_ = 0;
    std::vector<double> spent_;  ///< by each shared answer
};

}  // namespace atlasc
