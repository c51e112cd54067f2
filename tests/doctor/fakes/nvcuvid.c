// A stand-in for libnvcuvid with a Hopper-like answer: seven engines, no AV1, 4:4:4 for HEVC only, 8-bit H.264.
#include <ffnvcodec/dynlink_cuda.h>
#include <ffnvcodec/dynlink_nvcuvid.h>

CUresult cuvidGetDecoderCaps(CUVIDDECODECAPS* caps) {
  if (caps->eCodecType == cudaVideoCodec_AV1) return (CUresult)801;  // CUDA_ERROR_NOT_SUPPORTED
  int wide = caps->eChromaFormat == cudaVideoChromaFormat_444;
  int deep = caps->nBitDepthMinus8 > 0;
  if (wide && caps->eCodecType != cudaVideoCodec_HEVC) return CUDA_SUCCESS;
  if (deep && caps->eCodecType == cudaVideoCodec_H264) return CUDA_SUCCESS;
  caps->bIsSupported = 1;
  caps->nNumNVDECs = 7;
  caps->nOutputFormatMask = deep ? 2 : 1;
  caps->nMaxWidth = caps->eCodecType == cudaVideoCodec_H264 ? 4096 : 8192;
  caps->nMaxHeight = caps->nMaxWidth;
  caps->nMaxMBCount = caps->nMaxWidth * caps->nMaxHeight / 256;
  return CUDA_SUCCESS;
}
