"""What to do about an error of AWS or of an S3-compatible server, in one sentence."""

from __future__ import annotations

from botocore import exceptions as boto
from obstore import exceptions as store

_BY_CODE = {
    "AccessDenied": "give this identity what deploy/iam says for its part",
    "ResourceNotFound": "check the name and the region; `aws sagemaker list-clusters` names the clusters there are",
    "ValidationException": "check the name and the region; `aws sagemaker list-clusters` names the clusters there are",
    "Throttling": "AWS is asked too often: try again in a minute",
    "ExpiredToken": "log in again: the session's credentials are over",
    "InvalidClientTokenId": "the access key does not exist here: check the credentials",
    "UnrecognizedClient": "the access key does not exist here, or the region is not enabled: check both",
    "SignatureDoesNotMatch": "check AWS_SECRET_ACCESS_KEY and this machine's clock",
}
_BY_KIND: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    (
        (boto.NoCredentialsError, boto.PartialCredentialsError, boto.CredentialRetrievalError),
        "give credentials: an instance role or a service account's, an access key with its secret, or those of a "
        "profile by `aws configure export-credentials --format env`",
    ),
    (
        (boto.TokenRetrievalError, boto.SSOError),
        "log in again: `aws sso login`, then `aws configure export-credentials --format env`",
    ),
    ((boto.ProfileNotFound,), "`aws configure list-profiles` names the profiles; correct AWS_PROFILE"),
    ((boto.NoRegionError, boto.InvalidRegionError), "give --region, or set AWS_REGION, such as us-east-1"),
    ((boto.ParamValidationError,), "give the cluster's name or ARN as `aws sagemaker list-clusters` writes it"),
    (
        (boto.HTTPClientError, boto.ConnectionError),
        "check the region, AWS_ENDPOINT_URL, and that this machine may reach AWS (proxy, VPC)",
    ),
    ((store.PermissionDeniedError, store.UnauthenticatedError), _BY_CODE["AccessDenied"]),
)
_ELSE = "check the bucket, the region, AWS_ENDPOINT_URL and the credentials, then try again"


def advice(error: Exception) -> str:
    """What to do about ``error``."""
    if isinstance(error, boto.ClientError):
        code = error.response.get("Error", {}).get("Code", "")
        for start, do in _BY_CODE.items():
            if code.startswith(start):
                return do
    return next((do for kinds, do in _BY_KIND if isinstance(error, kinds)), _ELSE)
