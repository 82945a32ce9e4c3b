// What a client asked and what was answered: the file `queries` beside its secret key.
//
// Lines, to which more are only ever added:
//     query ID COUNT          written by encrypt
//     answered ID SHA256      written by decrypt: of the one answer that it took
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "atlasc/files.hpp"

namespace atlasc {

class Queries {
public:
    /// The queries of a secret key; a new file where there is none. Locked as long as this lives.
    /// Throws Error: the file is damaged, or others may read it.
    explicit Queries(const std::string& key);

    /// A query of `count` inputs; on the disk when this returns. Throws Error.
    void add(const std::string& query, std::size_t count);

    /// Refuse (Error) an answer to none of the queries, of another count, or, after a first one, of
    /// another digest; remembers it.
    void answer(const std::string& query, std::size_t count, const std::string& digest);

private:
    struct Query {
        std::size_t count;
        std::string answer{};  ///< digest of the file; empty until there is one
    };

    void read();
    bool read_line(const std::string& line);
    void append(const std::string& line);

    std::string path_;
    Descriptor file_;
    std::map<std::string, Query> queries_;
};

}  // namespace atlasc
