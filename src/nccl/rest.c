// SPDX-License-Identifier: Apache-2.0
/* The remaining names of libnccl.so.2, up to NCCL 2.32. All of them are defined, so that no call
 * reaches an NCCL that does not know these communicators. A function without a counterpart in kolo
 * returns an error. It reads no argument, so its parameters are left out. */
#include "shim.h"

ncclResult_t pncclGetVersion(int *version)
{
    if (version == NULL) {
        return shim_fail(ncclInvalidArgument, "version is NULL");
    }
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}
SHIM_NAME(ncclGetVersion)

void pncclResetDebugInit(void) {}
SHIM_NAME(ncclResetDebugInit)

#pragma GCC visibility push(default)

void ncclResetDebugInitInternal(void);
void ncclResetDebugInitInternal(void) {}

/* ---- teams: without a device API, a rank's loads and stores reach only itself ---- */

struct ncclTeam { /* of nccl_device.h */
    int nRanks, rank, stride;
};

struct ncclTeam pncclTeamWorld(ncclComm_t comm);
struct ncclTeam pncclTeamWorld(ncclComm_t comm)
{
    struct ncclTeam team = {0, 0, 1};
    if (shim_check(comm, "ncclTeamWorld") == ncclSuccess) {
        team.nRanks = comm->nranks;
        team.rank = comm->rank;
    }
    return team;
}
SHIM_NAME(ncclTeamWorld)

struct ncclTeam pncclTeamRail(ncclComm_t comm);
struct ncclTeam pncclTeamRail(ncclComm_t comm)
{
    return pncclTeamWorld(comm);
}
SHIM_NAME(ncclTeamRail)

struct ncclTeam pncclTeamLsa(ncclComm_t comm);
struct ncclTeam pncclTeamLsa(ncclComm_t comm)
{
    (void)comm;
    return (struct ncclTeam){1, 0, 1};
}
SHIM_NAME(ncclTeamLsa)

int pncclTeamRankToWorld(ncclComm_t comm, struct ncclTeam team, int rank);
int pncclTeamRankToWorld(ncclComm_t comm, struct ncclTeam team, int rank)
{
    return pncclTeamWorld(comm).rank + (rank - team.rank) * team.stride;
}
SHIM_NAME(ncclTeamRankToWorld)

int pncclTeamRankToLsa(ncclComm_t comm, struct ncclTeam team, int rank);
int pncclTeamRankToLsa(ncclComm_t comm, struct ncclTeam team, int rank)
{
    (void)comm;
    return (rank - team.rank) * team.stride;
}
SHIM_NAME(ncclTeamRankToLsa)

/* ---- not in kolo ---- */

#define LACKS(name)                                                                                \
    ncclResult_t p##name(void);                                                                    \
    ncclResult_t p##name(void)                                                                     \
    {                                                                                              \
        return shim_fail(ncclInvalidUsage, #name " is not in kolo");                               \
    }                                                                                              \
    ncclResult_t name(void);                                                                       \
    SHIM_NAME(name)

/* Growing, suspending, 2.29. */
LACKS(ncclCommGetUniqueId)
LACKS(ncclCommGrow)
LACKS(ncclCommMemStats)
LACKS(ncclCommResume)
LACKS(ncclCommSuspend)
LACKS(ncclSetEncryption)
/* Windows that other ranks write to, 2.29. */
LACKS(ncclPutSignal)
LACKS(ncclSignal)
LACKS(ncclWaitSignal)
LACKS(ncclWinGetUserPtr)
/* The device API, 2.28. */
LACKS(ncclCommQueryProperties)
LACKS(ncclDevCommCreate)
LACKS(ncclDevCommDestroy)
LACKS(ncclGetCftDeviceLeInfo)
LACKS(ncclGetLsaDevicePointer)
LACKS(ncclGetLsaMultimemDevicePointer)
LACKS(ncclGetMultimemDeviceLeInfo)
LACKS(ncclGetMultimemDevicePointer)
LACKS(ncclGetPeerDeviceLeInfo)
LACKS(ncclGetPeerDevicePointer)
LACKS(ncclGinBarrierCreateRequirement)
LACKS(ncclGinInboxA2ACreateRequirement)
LACKS(ncclGinOutboxCreateRequirement)
LACKS(ncclLLA2ACreateRequirement)
LACKS(ncclLsaBarrierCreateRequirement)
/* Parameters, 2.30. */
LACKS(ncclParamBind)
LACKS(ncclParamGet)
LACKS(ncclParamGetAllParameterKeys)
LACKS(ncclParamGetI16)
LACKS(ncclParamGetI32)
LACKS(ncclParamGetI64)
LACKS(ncclParamGetI8)
LACKS(ncclParamGetParameter)
LACKS(ncclParamGetStr)
LACKS(ncclParamGetU16)
LACKS(ncclParamGetU32)
LACKS(ncclParamGetU64)
LACKS(ncclParamGetU8)
/* Collectives with a configuration of their own, 2.32. */
LACKS(ncclAllGatherConfig)
LACKS(ncclAllReduceConfig)
LACKS(ncclAlltoAllConfig)
LACKS(ncclBroadcastConfig)
LACKS(ncclGatherConfig)
LACKS(ncclReduceConfig)
LACKS(ncclReduceScatterConfig)
LACKS(ncclScatterConfig)

/* Functions without a result code. */
void pncclParamDumpAll(void);
void pncclParamDumpAll(void) {}
void ncclParamDumpAll(void);
SHIM_NAME(ncclParamDumpAll)

int pncclLLA2ACalcSlots(int elements, int bytes);
int pncclLLA2ACalcSlots(int elements, int bytes)
{
    (void)elements;
    (void)bytes;
    return 0;
}
SHIM_NAME(ncclLLA2ACalcSlots)

struct ncclTeam pncclTeamCft(ncclComm_t comm);
struct ncclTeam pncclTeamCft(ncclComm_t comm)
{
    return pncclTeamLsa(comm);
}
SHIM_NAME(ncclTeamCft)

struct ncclTeam pncclTeamCftMultimem(ncclComm_t comm);
struct ncclTeam pncclTeamCftMultimem(ncclComm_t comm)
{
    return pncclTeamLsa(comm);
}
SHIM_NAME(ncclTeamCftMultimem)
