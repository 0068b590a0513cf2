// SPDX-License-Identifier: Apache-2.0
/* Ranks as forked processes. The parent is the hub through which they exchange bytes; an exchange
 * is a barrier too. A rank's expectations are checked in its process: its exit status says whether
 * they held. */
#ifndef KOLO_TESTS_PROCESSES_H
#define KOLO_TESTS_PROCESSES_H

#include "world.h"

/* What a forked rank gets. */
class Process
{
  public:
    Process(const kolo_transport *transport, int index, int nranks, int socket)
        : transport(transport), index(index), nranks(nranks), socket_(socket)
    {
    }
    /* Open, tell the others the address, connect. Expects success. */
    void Join();
    void Leave()
    {
        World::Disconnect(transport, rank);
    }
    /* Give `mine` and get what every rank gave, by rank. All must give the same size. */
    std::vector<std::vector<unsigned char>> Exchange(const void *mine, size_t len);
    void Barrier()
    {
        Exchange("", 1);
    }
    kolo_link *Link(int peer)
    {
        return rank.links[(size_t)peer];
    }
    /* Advance this rank until all have a status; false after a deadline. */
    bool Finish(const std::vector<kolo_req *> &reqs);

    const kolo_transport *const transport;
    const int index, nranks;
    Rank rank;

  private:
    int socket_;
};

/* Run `body` in `nranks` forked processes and expect all to end well. */
void RunProcesses(const kolo_transport *transport, int nranks,
                  const std::function<void(Process &)> &body);

/* Whether the transport joins processes of one host. */
bool JoinsProcesses(const kolo_transport *transport);

#endif
